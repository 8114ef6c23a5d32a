"""The few names of torch that GuideLLM imports, so that a gigabyte need not be installed for them.

GuideLLM iterates over its prompts with torch's DataLoader: one at a time, in order, in one process.
"""


class Generator:
    """Seeds a shuffle, which is never asked for here."""

    def manual_seed(self, _seed):
        return self


class Tensor:
    """Named in annotations only."""


class nn:  # pylint: disable=invalid-name
    """`datasets` asks whether an object is one of these before it pickles it."""

    class Module:
        """What no object here is."""
