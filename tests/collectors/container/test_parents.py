"""The group above tells what one that is gone has used: alone exactly, among others a bound, never too little."""

import shutil
from pathlib import Path

from tests.collectors.container.trees import write
from vmsonar.companion.parents import Parent, Share


class Tree:
    """A parent group whose CPU time is the sum of all that ever ran below it."""

    def __init__(self, folder: Path, version: int = 1) -> None:
        self.folder = folder
        self._version = version
        self._total = 0
        self.set_usage(folder, 0)

    def set_usage(self, folder: Path, used: int) -> None:
        if self._version == 1:
            write(folder / "cpuacct.usage", f"{used}\n")
        else:
            write(folder / "cpu.stat", f"usage_usec {used // 1000}\nuser_usec 0\n")

    def make(self, name: str, used: int) -> int:
        self._total += used
        self.set_usage(self.folder / name, used)
        self.set_usage(self.folder, self._total)
        return (self.folder / name).stat().st_ino

    def remove(self, name: str) -> None:
        shutil.rmtree(self.folder / name)


def test_one_that_was_removed_alone_is_told_exactly(tmp_path):
    for version in (1, 2):
        tree = Tree(tmp_path / str(version), version)
        tree.make("neighbour", 7_000_000)
        parent = Parent(str(tree.folder))
        inode = tree.make("a", 30_000_000)
        parent.expect(inode)
        tree.remove("a")
        assert parent.settle(inode) == Share(30_000_000, True)


def test_one_that_is_settled_before_its_removal_does_not_count_for_the_next(tmp_path):
    tree = Tree(tmp_path)
    parent = Parent(str(tmp_path))
    first = tree.make("a", 30)
    assert parent.settle(first) == Share(30, True)
    second = tree.make("b", 50)
    parent.expect(second)
    for name in ("a", "b"):
        tree.remove(name)
    assert parent.settle(second) == Share(50, True)


def test_two_that_went_together_cannot_be_told_apart(tmp_path):
    tree = Tree(tmp_path)
    parent = Parent(str(tmp_path))
    inodes = [tree.make(name, used) for name, used in (("a", 30), ("b", 50))]
    for inode, name in zip(inodes, ("a", "b"), strict=True):
        parent.expect(inode)
        tree.remove(name)
    assert parent.settle(inodes[0]) == Share(80, False)
    # What it used was in the answer for the other one: a second answer would be too little.
    assert parent.settle(inodes[1]) == Share(None, False)


def test_a_stranger_makes_the_next_answer_a_bound(tmp_path):
    tree = Tree(tmp_path)
    parent = Parent(str(tmp_path))
    inode = tree.make("a", 30)
    tree.make("stranger", 5)
    parent.spoil()
    tree.remove("stranger")
    tree.remove("a")
    assert parent.settle(inode) == Share(35, False)
    later = tree.make("c", 11)
    assert parent.settle(later) == Share(11, True)


def test_a_parent_that_is_gone_tells_nothing(tmp_path):
    tree = Tree(tmp_path / "parent")
    parent = Parent(str(tree.folder))
    inode = tree.make("a", 30)
    shutil.rmtree(tree.folder)
    assert parent.settle(inode) == Share(None, False)
