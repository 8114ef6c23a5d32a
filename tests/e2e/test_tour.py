"""docs/how-inference-works.md: what its commands print is what the page says they print."""

import os
import re
import subprocess

import pytest
from conftest import BINARY, CACHE, ROOT, SMOLLM2

PAGE = (ROOT / "docs/how-inference-works.md").read_text()
# What was measured differs from run to run; what a model answers, from one set of kernels to another.
MEASURED = ("kvasir bench", "kvasir complete")


def commands():
    """(command, printed) of each that prints the same everywhere."""
    found = []
    for block in re.findall(r"```console\n(.*?)\n```", PAGE, flags=re.S):
        for part in re.split(r"^\$ (?=kvasir|for )", block, flags=re.M)[1:]:
            command, _, printed = part.partition("\n")
            if not command.startswith(MEASURED):
                found.append((command, printed.strip("\n")))
    return found


def test_there_are_commands():
    assert len(commands()) >= 10
    kinds = {word for command, _ in commands() for word in re.findall(r"kvasir (\w+)", command)}
    assert kinds == {"tokenize", "plan", "simulate"}


@pytest.mark.parametrize("command, printed", commands())
def test_prints_what_the_page_says(command, printed, tmp_path):
    if " default" in command and not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is missing")
    (tmp_path / "kvasir").symlink_to(BINARY)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}",
                       KVASIR_MODEL_CACHE=str(CACHE))
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                           check=True, env=environment)
    lines = [line.rstrip() for line in shown.stdout.strip("\n").splitlines()]
    assert "\n".join(lines) == printed
