"""`python -m tests.commands.stuck MARK PLACE COMMAND…`: the command line, which gets stuck at a place and says so."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from tests.real.wait import let_pass


def _get_stuck(*_: Any, **__: Any) -> None:
    Path(os.environ["STUCK_MARK"]).touch()
    let_pass(600)


def stuck_path(*_: Any, **__: Any) -> None:
    """Stands for verify_path in a helping process."""
    _get_stuck()


def _stuck_csv(sink: Any, names: Any, _rows: Any) -> None:
    sink.write("a half\r\n")
    sink.flush()
    _get_stuck()


def _stuck_work(_task: Any, _signer: Any, open_output: Any, _progress: Any) -> None:
    os.write(open_output("bundle"), b"a half")
    _get_stuck()


def _stuck_rewrite(_sources: Any, place: Path, *_: Any) -> None:
    place.write_bytes(b"a half")
    _get_stuck()


def _begin(call: Any) -> Any:
    def begun(*given: Any, **named: Any) -> Any:
        Path(os.environ["STUCK_MARK"]).touch()
        return call(*given, **named)

    return begun


#: What is put in the place of something: None is the thing itself, which is marked when it begins.
PLACES: dict[str, Any] = {
    "vmsonar_inspect.tables.database:Tables.locked_sql": None,
    "vmsonar_inspect.facts.queries:Queries.rows": _get_stuck,
    "vmsonar_inspect.show.page.build:_page": _get_stuck,
    "vmsonar_inspect.export.csv:write_csv": _stuck_csv,
    "vmsonar_inspect.export.sonar_tree:SonarTree.finish": _get_stuck,
    "vmsonar_inspect.export.lake:_files": _get_stuck,
    "vmsonar_archive.verify.content:check_segment": _get_stuck,
    "vmsonar_archive.verify.path:verify_path": stuck_path,
    "vmsonar_archive.bundle.make:work": _stuck_work,
    "vmsonar_archive.verify.recover:rewrite": _stuck_rewrite,
    "vmsonar_archive.parquet.derive:due_days": _get_stuck,
}


def main() -> None:
    place, *line = sys.argv[1:]
    if place in PLACES:
        module, _, names = place.partition(":")
        owner = importlib.import_module(module)
        *path, last = names.split(".")
        for name in path:
            owner = getattr(owner, name)
        setattr(owner, last, PLACES[place] or _begin(getattr(owner, last)))
    from vmsonar.cli import main as command_line

    command_line(line)


if __name__ == "__main__":
    # Under its own name, so that a helping process finds what it is handed.
    importlib.import_module("tests.commands.stuck").main()
