"""The workloads that are simulated and run for real, and the comparisons whose order must agree."""

import dataclasses

ENGINE = ["--max-num-seqs", 32, "--max-num-batched-tokens", 160, "--max-model-len", 2048,
          "--num-kv-blocks", 512]


@dataclasses.dataclass
class Case:
    """`traffic` and `engine` are flags; those of `engine` are understood by serve and simulate."""
    name: str
    traffic: list
    engine: list = dataclasses.field(default_factory=lambda: ENGINE)
    users: int = 0     # as in `traffic`, where it is a closed loop
    at_once: int = 0   # as in `traffic`, where it comes in bursts


def closed(name, users, requests, *traffic, engine=None):
    return Case(name, ["--users", users, "--requests", requests, *traffic], engine or ENGINE,
                users=users)


def burst(name, size, *traffic, engine=None):
    return Case(name, ["--arrivals", "burst", "--burst-size", size, "--requests", size, *traffic],
                engine or ENGINE, at_once=size)


def overhead():
    """Hardly anything is computed: what remains is how a request gets in and its token out."""
    return closed("request overhead", 1, 60, "--prompt-tokens", 2, "--output-tokens", 1)


TINY_CACHE = ["--max-num-seqs", 32, "--max-num-batched-tokens", 160, "--max-model-len", 256,
              "--num-kv-blocks", 40]


def workloads(rate):
    """The six; `rate` is near the machine's limit, requests a second."""
    return [
        closed("one stream", 1, 6, "--prompt-tokens", 128, "--output-tokens", 128),
        closed("16 users, closed loop", 16, 48, "--prompt-tokens", 128, "--output-tokens", 64),
        burst("burst of 32", 32, "--prompt-tokens", 128, "--output-tokens", 64),
        Case(f"Poisson, {rate:.2f} requests/s",
             ["--arrivals", "poisson", "--rate", f"{rate:.4f}", "--requests", 60,
              "--prompt-tokens", 128, "--output-tokens", 64]),
        closed("shared prefix of 512 tokens, 4 users", 4, 24, "--prefix-tokens", 512,
               "--prompt-tokens", 32, "--output-tokens", 48),
        burst("tiny cache, burst of 8", 8, "--prompt-tokens", 64, "--output-tokens", 96,
              engine=TINY_CACHE),
    ]


@dataclasses.dataclass
class Comparison:
    """`compare` goes to simulate; `variants` are the same for serve, in the same order: flags, or
    with `formats` the model's file in that format. `figure` tells them apart."""
    compare: str
    case: Case
    variants: list
    figure: str
    formats: bool = False


def block_size_flags(block_size, blocks_of_16):
    return ["--block-size", block_size, "--num-kv-blocks", blocks_of_16 * 16 // block_size]


RESERVED = ["--max-num-seqs", 32, "--max-num-batched-tokens", 160, "--max-model-len", 1024,
            "--num-kv-blocks", 256]
LONG = ["--max-num-seqs", 32, "--max-num-batched-tokens", 64, "--max-model-len", 1024,
        "--num-kv-blocks", 1024]
NO_BLOCKS = ["--max-num-seqs", 32, "--max-num-batched-tokens", 160, "--max-model-len", 2048]

COMPARISONS = [
    Comparison("kv-allocation",
               burst("kv-allocation", 16, "--prompt-tokens", 64, "--output-tokens", 64,
                     engine=RESERVED),
               [["--kv-allocation", "reserved"], ["--kv-allocation", "paged"]],
               "output_tokens_per_s"),
    Comparison("batching",
               closed("batching", 8, 24, "--prompt-tokens", 32, "--output-tokens", "10..150"),
               [["--batching", "static"], ["--batching", "continuous"]], "output_tokens_per_s"),
    Comparison("prefix-caching",
               closed("prefix-caching", 4, 16, "--prefix-tokens", 512, "--prompt-tokens", 32,
                      "--output-tokens", 32),
               [["--no-enable-prefix-caching"], ["--enable-prefix-caching"]], "ttft_s"),
    Comparison("chunked-prefill",
               closed("chunked-prefill", 4, 12, "--prompt-tokens", "100..700", "--output-tokens",
                      "60..100", engine=LONG),
               [["--no-enable-chunked-prefill"], ["--enable-chunked-prefill"]], "itl_p99_s"),
    Comparison("block-size=8,16,32,64",
               closed("block-size", 2, 16, "--prefix-tokens", 250, "--prompt-tokens", 16,
                      "--output-tokens", 16, engine=NO_BLOCKS),
               [block_size_flags(size, 512) for size in (8, 16, 32, 64)], "ttft_s"),
    Comparison("weights=bf16,q8_0,q4_1",
               closed("weights", 2, 8, "--prompt-tokens", 64, "--output-tokens", 96),
               ["BF16", "Q8_0", "Q4_1"], "output_tokens_per_s", formats=True),
]
