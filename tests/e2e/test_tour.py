"""What commands print is what the pages say they print: all of docs/how-inference-works.md, and the
plans of README.md and docs/planning.md."""

import os
import re
import subprocess

import pytest
from conftest import BINARY, CACHE, ROOT, SMOLLM2

# What was measured differs from run to run; what a model answers, from one set of kernels to another.
MEASURED = ("kvasir bench", "kvasir complete")


def commands(page="docs/how-inference-works.md"):
    """(command, printed) of each that prints the same everywhere."""
    found = []
    for block in re.findall(r"```console\n(.*?)\n```", (ROOT / page).read_text(), flags=re.S):
        for part in re.split(r"^\$ (?=\S*kvasir|for )", block, flags=re.M)[1:]:
            command, _, printed = part.partition("\n")
            if not command.startswith(MEASURED):
                found.append((command, printed.strip("\n")))
    return found


def plans():
    """Those of other pages that show what they print."""
    found = [(command.replace("build/release/kvasir", "kvasir"), printed)
             for page in ("README.md", "docs/planning.md") for command, printed in commands(page)]
    return [(command, printed) for command, printed in found
            if command.startswith("kvasir plan") and printed]


def test_there_are_commands():
    assert len(commands()) >= 10 and len(plans()) >= 6
    kinds = {word for command, _ in commands() for word in re.findall(r"kvasir (\w+)", command)}
    assert kinds == {"tokenize", "plan", "simulate"}


@pytest.mark.parametrize("command, printed", commands() + plans())
def test_prints_what_the_page_says(command, printed, tmp_path):
    if " default" in command and not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is missing")
    (tmp_path / "kvasir").symlink_to(BINARY)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}",
                       KVASIR_MODEL_CACHE=str(CACHE))
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                           check=True, env=environment)
    lines = [line.rstrip() for line in shown.stdout.strip("\n").splitlines()]
    # A line of three dots stands for what a page leaves out.
    if "..." not in printed.splitlines():
        assert "\n".join(lines) == printed
        return
    left = "\n".join(lines)
    for piece in filter(None, re.split(r"\n?^\.\.\.$\n?", printed, flags=re.M)):
        assert piece in left
        left = left.partition(piece)[2]
