from typing import Generic, TypeVar

Item = TypeVar("Item")


class DataLoader(Generic[Item]):
    """Gives the items of an iterable data set, in batches of one, in this process (workers are not needed)."""

    def __init__(self, dataset, batch_size=1, shuffle=None, num_workers=0, collate_fn=None,
                 prefetch_factor=None, generator=None):
        if batch_size != 1 or shuffle:
            raise ValueError("expected batch_size 1 and no shuffle")
        del num_workers, prefetch_factor, generator
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        for item in self.dataset:
            yield self.collate_fn([item])
