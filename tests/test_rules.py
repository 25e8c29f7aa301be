"""Rules that the tests themselves keep: no imports between them, no sleeps to synchronise, one maker of archives."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = {
    str(path.relative_to(TESTS)): path.read_text()
    for path in sorted(TESTS.rglob("*.py"))
    if path.name != "test_rules.py"
}
# Also in code that a test hands to another process.
FOREIGN = re.compile(r"(?:from|import) (?:bench\b|tests[\w.]*\.test_|\.+test_)")


def sleeps_outside_loops(text: str) -> Iterator[int]:
    def visit(node: ast.AST, in_loop: bool) -> Iterator[int]:
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            in_loop = False
        if isinstance(node, ast.For | ast.While):
            in_loop = True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep") and not in_loop:
            yield node.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child, in_loop)

    return visit(ast.parse(text), False)


def test_nothing_is_imported_from_a_test_or_a_benchmark() -> None:
    found = {name: FOREIGN.findall(text) for name, text in FILES.items() if FOREIGN.search(text)}
    assert found == {}, "shared helpers belong into a module beside the tests"


def test_nobody_sleeps_to_synchronise() -> None:
    """A condition is waited for with a bound; where time itself is meant, `let_pass` says so."""
    found = {name: lines for name, text in FILES.items() if (lines := list(sleeps_outside_loops(text)))}
    assert found.keys() == {"real/wait.py"}, found


def test_archives_are_made_in_one_place() -> None:
    opened = {name for name, text in FILES.items() if "ArchiveWriter(" in text}
    assert opened == {"making/archives.py"}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import time\ntime.sleep(1)", [2]),
        ("while True:\n    time.sleep(1)", []),
        ("for one in two:\n    def late():\n        time.sleep(1)", [3]),
    ],
)
def test_a_sleep_is_found(text: str, lines: list[int]) -> None:
    assert list(sleeps_outside_loops(text)) == lines
