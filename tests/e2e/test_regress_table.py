"""tests/regress/README.md: every row has tests that exist, or the reason why it has none."""

import re

from conftest import ROOT

TABLE = ROOT / "tests/regress/README.md"


def rows():
    found = re.findall(r"^\| (\d+) \| ([a-j]) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
                       TABLE.read_text(), re.MULTILINE)
    assert found
    return found


def names_of_tests():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cc"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(),
                                      re.MULTILINE):
            names.add(f"{suite}.{name}")
    for path in (ROOT / "tests/e2e").glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            names.add(f"{path.name}::{name}")
    return names


def test_all_rows_are_there_once():
    numbers = [int(row[0]) for row in rows()]
    assert len(numbers) == 180
    assert numbers == sorted(set(numbers))


def test_every_test_that_is_named_exists():
    tree = names_of_tests()
    assert len(tree) > 300
    for number, _, _, _, cell in rows():
        names = re.findall(r"`([\w.]+(?:\.|::)\w+)`", cell)
        for name in names:
            assert name in tree, f"row {number}: no test {name}"
        assert names or len(cell) > 20, f"row {number}: neither a test nor a reason"


def test_rows_and_names_of_tests_agree():
    """A test whose name holds a row's number stands in that row."""
    cells = {int(row[0]): row[4] for row in rows()}
    for name in names_of_tests():
        numbers = re.match(r"(?:Regress\w+\.Rows?|test_regress\.py::test_rows?_)(\d+)(.*)", name)
        if not numbers:
            continue
        listed = [int(numbers.group(1))]
        rest = numbers.group(2)
        while more := re.match(r"(?:And|_and_|_)(\d{3})(.*)", rest):
            listed.append(int(more.group(1)))
            rest = more.group(2)
        for number in listed:
            assert name in cells[number], f"{name} is not in row {number}"
