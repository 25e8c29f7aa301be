"""Who is recorded, and what a user id is called."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from vmsonar.collectors.process.identity import ProcessFilter
from vmsonar.config.schema import Filters, Selection, UidRange, UidSelection
from vmsonar.host.cgroups import Membership
from vmsonar.host.users import Users, parse_passwd


@dataclass
class Someone:
    user_id: int | None = 1000
    user_name: str | None = "ann"
    program: str | None = "python3"
    cgroup: str | None = "/user.slice/user-1000.slice"

    @property
    def membership(self) -> Membership:
        return Membership(None, None, None, self.cgroup)


@pytest.mark.parametrize(
    ("filters", "someone", "kept"),
    [
        (Filters(), Someone(), True),
        (Filters(), Someone(None, None, None, None), True),
        (Filters(users=Selection(keep=["ann"])), Someone(), True),
        (Filters(users=Selection(keep=["bob"])), Someone(), False),
        (Filters(users=Selection(keep=["bob"])), Someone(user_name=None), False),
        (Filters(users=Selection(leave_out=["ann"])), Someone(), False),
        (Filters(users=Selection(leave_out=["ann"])), Someone(user_name=None), True),
        (Filters(users=Selection(keep=["ann"], leave_out=["a*"])), Someone(), False),
        (Filters(uids=UidSelection(keep=[UidRange(1000, 1999)])), Someone(), True),
        (Filters(uids=UidSelection(keep=[UidRange(1000, 1999)])), Someone(user_id=999), False),
        (Filters(uids=UidSelection(leave_out=[UidRange(0, 999)])), Someone(user_id=0), False),
        (Filters(uids=UidSelection(leave_out=[UidRange(0, 999)])), Someone(), True),
        (Filters(uids=UidSelection(keep=[UidRange(0, 9)])), Someone(user_id=None), False),
        (Filters(commands=Selection(keep=["python*"])), Someone(), True),
        (Filters(commands=Selection(keep=["python"])), Someone(), False),
        (Filters(commands=Selection(leave_out=["python[23]"])), Someone(), False),
        (Filters(cgroups=Selection(leave_out=["/user.slice/*"])), Someone(), False),
        (Filters(cgroups=Selection(keep=["/system.slice/*"])), Someone(), False),
    ],
)
def test_who_is_kept(filters: Filters, someone: Someone, kept: bool) -> None:
    assert ProcessFilter(filters).keeps(someone) is kept


def test_a_filter_knows_whether_it_leaves_anybody_out() -> None:
    assert not ProcessFilter(Filters()).is_selective
    assert not ProcessFilter(Filters(kernel_threads="keep")).is_selective
    assert ProcessFilter(Filters(users=Selection(keep=["ann"]))).is_selective


PASSWD = b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:\n+nis\nann:x:1000:1000:A,\xff::/bin/sh\nbad:x:y:0\n"


def test_names_of_users() -> None:
    assert parse_passwd(PASSWD) == {0: "root", 1000: "ann"}


def test_a_user_that_is_added_later_gets_a_name(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    users = Users(passwd, ask_system=False)
    users.refresh()
    assert users.name(1000) is None
    passwd.write_bytes(PASSWD)
    users.refresh()
    assert users.name(1000) == "ann"
    assert users.name(4711) is None


def test_a_directory_server_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    begun, answered = threading.Event(), threading.Event()

    def slow(uid: int) -> object:
        asked.append(uid)
        begun.set()
        answered.wait(60)
        raise KeyError(uid)

    monkeypatch.setattr("vmsonar.host.users.pwd.getpwuid", slow)
    users = Users(tmp_path / "passwd", ask_system=True)
    begin = time.monotonic()
    assert [users.name(uid) for uid in (5, 6, 5)] == [None, None, None]
    assert time.monotonic() - begin < 20
    assert begun.wait(20)
    assert asked == [5]
    answered.set()
