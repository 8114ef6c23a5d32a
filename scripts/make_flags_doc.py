"""Writes docs/flags.md from the binary's own --help: make_flags_doc.py BINARY > docs/flags.md."""

import subprocess
import sys

HEAD = """# Commands and flags

This page is what `--help` prints, put together by `scripts/make_flags_doc.py`.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the input was understood, but could not be done (a template's error, a prompt that is too long) |
| 2 | wrong command, flags or arguments |
| 3 | the model, or another file that a flag names (a trace, a calibration, a machine), cannot be opened or used |
| 4 | the address, socket or certificate cannot be used |
| 128 + n | ended at once by signal n |

`kvasir serve` also takes flags of vLLM that have nothing to switch here, so that manifests written for it work, and says so: `--trust-remote-code`, `--enforce-eager`, `--disable-log-requests`, `--disable-log-stats`, `--disable-uvicorn-access-log`, `--enable-prompt-tokens-details`, `--enable-server-load-tracking`, `--enable-request-id-headers`, `--enable-tokenizer-info-endpoint`, `--gpu-memory-utilization`, `--swap-space`, `--uvicorn-log-level`, `--dtype`, and `--tensor-parallel-size`, `--data-parallel-size`, `--pipeline-parallel-size` where they are 1.
"""


def page(binary):
    """The whole page as text."""
    parts = [HEAD]
    for command in ["", "serve", "chat", "complete", "tokenize", "render", "inspect", "bench",
                    "bench calibrate", "simulate", "plan", "completion"]:
        words = ["kvasir", *command.split()]
        shown = subprocess.run([binary, *words[1:], "--help"], capture_output=True, text=True,
                               check=True).stdout
        lines = [line.rstrip() for line in shown.strip().splitlines()]
        parts.append(f"\n## {' '.join(words)}\n\n```text\n" + "\n".join(lines) + "\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
