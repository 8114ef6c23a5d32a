"""Writes docs/flags.md from the binary's own --help: make_flags_doc.py BINARY > docs/flags.md."""

import subprocess
import sys

HEAD = """# Commands and flags

This page is what `--help` prints, put together by `scripts/make_flags_doc.py`.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the input was understood, but could not be done (a template's error, a prompt that is too long), or standard output could not be written |
| 2 | wrong command, flags or arguments |
| 3 | the model, or another file that a flag names (a trace, a calibration, a machine), cannot be opened or used |
| 4 | the address, socket or certificate cannot be used |
| 128 + n | ended at once by signal n |

`kvasir serve` also takes flags of vLLM that have nothing to switch here, so that manifests written for it work, and says so: `--trust-remote-code`, `--enforce-eager`, `--disable-log-requests`, `--disable-log-stats`, `--disable-uvicorn-access-log`, `--enable-prompt-tokens-details`, `--enable-server-load-tracking`, `--enable-request-id-headers`, `--enable-tokenizer-info-endpoint`, `--gpu-memory-utilization`, `--swap-space`, `--uvicorn-log-level`, `--dtype`, and `--tensor-parallel-size`, `--data-parallel-size`, `--pipeline-parallel-size` where they are 1.

The model `default` is SmolLM2-135M-Instruct.Q4_1.gguf, which `./run` fetches. It is looked for in the folder `$KVASIR_MODEL_CACHE`, then in `.cache/models` of the tree that the binary was built in, then in `~/.cache/kvasir/models`; nothing else is ever fetched or searched.

Where a flag takes a text, an empty one is refused (exit code 2), but for `--system`, `--bos-token`, `--eos-token` and `--allowed-origins`: a script's variable that was never set should not start a server without its key or its socket. Where a reader closes the pipe (`kvasir inspect MODEL | head -1`), the command ends in silence. `kvasir serve` serves on whatever becomes of its standard output.

In `kvasir chat`, Ctrl-C stops an answer and, at the prompt, ends the conversation, as Ctrl-D, `/exit` and `/quit` do. `/clear` forgets the conversation, which a full context asks for; `/help` shows this.
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
