"""Increments: each confirmed upload is remembered, and only what is new goes out the next time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.bundle.increment import acknowledge
from vmsonar_archive.bundle.snapshot import take_snapshot
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path

from tests.archive.bundle.tls_server import Store, running
from tests.making.bundles import START, fill, make_archive, open_writer
from tests.real.certificates import Authority, make_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def store(authority: Authority) -> Iterator[Store]:
    with running(authority.issue("increment")) as server:
        yield server


class Site:
    """An archive, a server, and the command between them."""

    def __init__(self, root: Path, store: Store, authority: Authority) -> None:
        self.root = root / "archive"
        self._folder = root
        self._store = store
        self._authority = authority
        make_archive(self.root)

    def send(self, name: str, *more: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "vmsonar", "bundle", "--archive", str(self.root), "--increment"]
        environment = {**os.environ, "SSL_CERT_FILE": str(self._authority.certificate)}
        return subprocess.run(
            [*command, "-o", self._store.url(name), *more],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def numbers(self, name: str) -> list[int]:
        """The samples that arrived under a name."""
        path = self._folder / name
        path.write_bytes(self._store.stored[f"/bucket/{name}"])
        report = verify_path(path)
        assert report.ok, report.findings
        with open_archive(path) as inside:
            assert list(inside.sysinfos())
            return [sample.seq for sample in inside.samples()]


@pytest.fixture
def site(tmp_path: Path, store: Store, authority: Authority) -> Site:
    return Site(tmp_path, store, authority)


def test_each_upload_takes_what_is_new(site: Site) -> None:
    assert site.send("1.tar").returncode == 0
    assert site.numbers("1.tar") == list(range(2, 42))
    writer = open_writer(site.root)
    fill(writer, 5, START + timedelta(hours=3), first=100)
    assert site.send("2.tar").returncode == 0
    assert site.numbers("2.tar") == list(range(43, 48))
    fill(writer, 5, START + timedelta(hours=3, minutes=1), first=105)
    writer.close()
    assert site.send("3.tar").returncode == 0
    assert site.numbers("3.tar") == list(range(49, 54))
    assert verify_path(site.root).findings == [] or verify_path(site.root).ok


def test_increment_from_the_middle_of_a_segment_describes_its_processes(site: Site) -> None:
    writer = open_writer(site.root)
    fill(writer, 5, START + timedelta(hours=3), first=100)
    assert site.send("1.tar").returncode == 0
    fill(writer, 5, START + timedelta(hours=3, minutes=1), first=105)
    assert site.send("2.tar").returncode == 0
    writer.close()
    site.numbers("2.tar")
    with open_archive(site._folder / "2.tar") as inside:
        first = next(inside.samples())
    assert {row.pid for row in first.process_info} == {100, 101, 102}


def test_nothing_new_sends_nothing(site: Site, store: Store) -> None:
    assert site.send("1.tar").returncode == 0
    done = site.send("2.tar")
    assert done.returncode == 0
    assert "note: up_to_date: no record since 41" in done.stderr
    assert list(store.stored) == ["/bucket/1.tar"]


def test_failed_and_unconfirmed_uploads_are_not_counted(site: Site, store: Store) -> None:
    store.plan = ["403"]
    assert site.send("1.tar").returncode == 3
    store.plan = ["truncate"]
    assert site.send("2.tar").returncode == 3
    store.plan = ["silent"]
    assert site.send("3.tar").returncode == 0
    assert not (site.root / "uploads.json").exists()
    assert site.send("4.tar").returncode == 0
    assert site.numbers("4.tar") == list(range(2, 42))


def test_records_lost_by_a_power_cut_are_not_passed_over(site: Site) -> None:
    """Uploaded from a live segment, then lost: the numbers come again, with other records."""
    writer = open_writer(site.root)
    fill(writer, 5, START + timedelta(hours=3), first=100)
    assert site.send("1.tar").returncode == 0
    writer.close()
    # As if the last segments had never reached the disk.
    for path in site.root.glob("2026/11/16/s*-165800-*.zst"):
        path.unlink()
    journal = site.root / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if "-165800-" not in line))
    writer = open_writer(site.root)
    fill(writer, 8, START + timedelta(hours=4), first=200)
    writer.close()
    assert site.send("2.tar").returncode == 0
    assert site.numbers("2.tar") == list(range(43, 51))


def test_numbers_that_were_given_twice_are_not_passed_over(site: Site) -> None:
    """As a version before this one left it: a run numbered its records like those of a run that was uploaded."""
    writer = open_writer(site.root)
    fill(writer, 20, START + timedelta(hours=3, minutes=5), first=100)
    assert site.send("1.tar").returncode == 0
    writer._next_seq = 45
    writer.run = "f" * 32
    fill(writer, 30, START + timedelta(hours=4, minutes=5), first=200)
    assert site.send("2.tar").returncode == 0
    assert site.numbers("2.tar") == list(range(46, 76)), "sysinfo is 45; the other run has numbers up to 62"
    fill(writer, 5, START + timedelta(hours=4, minutes=20), first=230)
    writer.close()
    assert site.send("3.tar").returncode == 0
    assert site.numbers("3.tar") == list(range(77, 82))
    assert site.send("4.tar").returncode == 0, "there is nothing more"


def test_a_description_of_the_machine_alone_is_taken_too(site: Site, store: Store) -> None:
    assert site.send("1.tar").returncode == 0
    for number, name in enumerate(("2.tar", "3.tar"), 1):
        writer = open_writer(site.root)
        fill(writer, 0, START + timedelta(hours=3 + number))
        writer.close()
        assert site.send(name).returncode == 0
        assert site.numbers(name) == []
        with open_archive(site._folder / name) as inside:
            assert [info.seq for info in inside.sysinfos()][-1] == 41 + number
    assert "up_to_date" in site.send("4.tar").stderr


def test_what_an_earlier_version_remembered_is_read(site: Site) -> None:
    assert site.send("1.tar").returncode == 0
    path = site.root / "uploads.json"
    taken = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in taken.items() if name != "runs"}))
    assert "up_to_date" in site.send("2.tar").stderr
    writer = open_writer(site.root)
    fill(writer, 5, START + timedelta(hours=3), first=100)
    writer.close()
    assert site.send("3.tar").returncode == 0
    assert site.numbers("3.tar") == list(range(43, 48))


def test_what_could_not_be_opened_is_taken_another_time(site: Site, tmp_path: Path) -> None:
    writer = open_writer(site.root)
    fill(writer, 5, START + timedelta(hours=3), first=100)
    writer.close()
    (last,) = site.root.glob("2026/11/16/sample-1658*.zst")
    folder = os.open(site.root, os.O_RDONLY)
    snapshot = take_snapshot(folder, "archive")
    os.close(snapshot.held.pop(str(last.relative_to(site.root))).descriptor)
    snapshot.withheld.append(str(last.relative_to(site.root)))
    acknowledge(folder, snapshot, "1", "0" * 64)
    snapshot.close()
    os.close(folder)
    assert site.send("2.tar").returncode == 0
    assert set(range(43, 48)) <= set(site.numbers("2.tar"))


def test_bookkeeping_stays_on_the_node(site: Site, tmp_path: Path) -> None:
    assert site.send("1.tar").returncode == 0
    taken = json.loads((site.root / "uploads.json").read_text())
    assert taken["last_seq"] == 41
    assert site.send("2.tar", "--json").returncode == 0
    from vmsonar_archive.bundle.make import bundle_to_file

    assert b"uploads.json" not in Path(bundle_to_file(site.root, tmp_path).output).read_bytes()
