"""An intake that ends at a chosen point as a killed process does: nothing is cleaned up, only the locks are gone."""

import os
from pathlib import Path

from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet, open_fleet


def points(folder: Path, contents: list[bytes]) -> list[str]:
    """The points that taking these bundles passes, in order."""
    folder.mkdir()
    found: list[str] = []
    intake = Intake(open_fleet(folder / "fleet", create=True), fault=found.append)
    _lay(folder, contents)
    for path in sorted(folder.glob("*.tar")):
        assert intake.take(path, "test").accepted
    return found


def killed_at(folder: Path, contents: list[bytes], number: int) -> Fleet:
    """In a child, which ends when it passes the point of that number."""
    fleet = open_fleet(folder / "fleet", create=True)
    _lay(folder, contents)
    child = os.fork()
    if child == 0:
        passed = 0

        def fault(_point: str) -> None:
            nonlocal passed
            if passed == number:
                os._exit(9)
            passed += 1

        intake = Intake(fleet, fault=fault)
        for path in sorted(folder.glob("*.tar")):
            intake.take(path, "test")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    return fleet


def take_rest(folder: Path, fleet: Fleet) -> None:
    intake = Intake(fleet)
    for path in sorted(folder.glob("*.tar")):
        assert intake.take(path, "test").accepted


def _lay(folder: Path, contents: list[bytes]) -> None:
    for number, content in enumerate(contents):
        (folder / f"{number}.tar").write_bytes(content)
