"""A copied machine's archive is moved aside, or stays where it is: whole in both cases, wherever that was cut off."""

from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.format.identity import NodeIdentity, read_identity
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.archives import open_writer
from tests.making.bundles import NODE, START, fill, make_archive

OTHER = msgspec.structs.replace(NODE, machine_id="f" * 32)


class Cut(Exception):
    """The power went."""


def open_as(root: Path, node: NodeIdentity) -> ArchiveWriter:
    return open_writer(root, node=node, now=lambda: START)


def cut_after(moves: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Begins to move aside and stops after so many moves; False when it came to its end before."""
    rename, left = Path.rename, moves

    def counted(self: Path, target: Path) -> Path:
        nonlocal left
        if left == 0:
            raise Cut
        left -= 1
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", counted)
        try:
            open_as(root, OTHER).close()
        except Cut:
            return True
    return False


def numbers(root: Path) -> list[int]:
    with open_archive(root) as archive:
        return [sample.seq for sample in archive.samples()]


@pytest.mark.parametrize("moves", range(7))
@pytest.mark.parametrize("node", [NODE, OTHER], ids=["old", "new"])
def test_wherever_it_was_cut_off(node, moves, tmp_path, monkeypatch):
    root = make_archive(tmp_path / "archive")
    old = read_identity(root)
    (root / "uploads.json").write_text("{}")
    cut_after(moves, root, monkeypatch)
    was_moved = read_identity(root).archive != old.archive if (root / "archive.json").exists() else True
    writer = open_as(root, node)
    fill(writer, 1, START)
    writer.close()
    place = root / "earlier" / old.archive if node is OTHER or was_moved else root
    assert read_identity(place).archive == old.archive
    assert numbers(place)[:40] == list(range(2, 42))
    assert not any(finding.severity.value == "error" for finding in verify_path(place).findings)
    assert (root / "uploads.json").exists() == (place == root)
    if place == root:
        assert len(numbers(root)) == 41
        assert list((root / "earlier").iterdir()) == []


def test_the_cuts_cover_it(tmp_path, monkeypatch):
    root = make_archive(tmp_path / "archive")
    assert cut_after(3, root, monkeypatch)
    assert not cut_after(99, root, monkeypatch)
