"""Answers that were made before are given again, up to a time and a size; what fails leaves nothing behind."""

import base64
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet.serve.place import NOW, Site, file_machine, site_of
from tests.making.machines import GIB, Load, Machine
from vmsonar.fleet.holdings import Holding, write_holding
from vmsonar.fleet.store import Fleet


@pytest.fixture
def place(fleet: Fleet, tmp_path: Path) -> Iterator[Site]:
    yield from site_of(fleet, tmp_path / "state")


def age(site: Site, seconds: float) -> None:
    """As if all answers had been made earlier."""
    for key, (made, generation, response) in list(site.server.kept.items()):
        site.server.kept[key] = made - seconds, generation, response


def test_what_fails_leaves_nothing_behind(site: Site) -> None:
    for number in range(20):
        assert site.ask("admin", f"/api/v1/machines/{number}").status_code == 404
    assert site.server.making == {}


def test_who_asks_for_what_is_not_theirs_is_noted(site: Site, hosts: dict[str, str]) -> None:
    address = f"/api/v1/machines/{hosts['vm-shared']}"
    for who, noted in (("hers", 1), ("admin", 0)):
        before = len(site.denied)
        assert site.ask(who, address if noted else f"{address[:-1]}x").status_code == 404
        assert len(site.denied) - before == noted
    assert f"denied 404 GET {address} to hers from 127.0.0.1" in site.denied[-1]


def test_two_archives_of_one_machine_are_counted_and_called_alike(place: Site, tmp_path: Path) -> None:
    begins = [NOW - timedelta(hours=5), NOW - timedelta(hours=2)]
    for number, start in enumerate(begins):
        load = Load(100, "./held", begin=0, cores=0.001, memory=4 * GIB)
        file_machine(place.fleet, Machine(memory=16 * GIB, start=start, loads=[load]), tmp_path / str(number))
    place.catch_up()
    page = place.ask("admin", "/").text
    assert "<h1>2 machines</h1>" in page
    assert "of 2 machines</h3>" in page
    assert "of 1 machine</h3>" not in page
    names = data_of(page)["tables"]["machines"]["columns"][0]["cells"]
    assert len(set(names)) == 2, names


def test_the_fleet_is_told_as_it_was_while_it_is_asked_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask("admin", "/api/v1/fleet")
    made, go_on = threading.Event(), threading.Event()
    seen_by = site.prepared.seen_by

    def slowly(scope):  # type: ignore[no-untyped-def]
        made.set()
        go_on.wait(10)
        return seen_by(scope)

    monkeypatch.setattr(type(site.prepared), "seen_by", lambda _, scope: slowly(scope))
    age(site, 15)
    before = set(site.server.kept.values())
    assert site.ask("admin", "/api/v1/fleet").status_code == 200
    assert made.wait(10)
    assert set(site.server.kept.values()) == before
    go_on.set()
    pause = threading.Event()
    assert any(set(site.server.kept.values()) != before or pause.wait(0.05) for _ in range(200))
    # After a minute without a question nobody gets what is old.
    made.clear()
    age(site, 100)
    assert site.ask("admin", "/api/v1/fleet").status_code == 200
    assert made.is_set()
    assert site.server.renewing == {}


def test_what_is_kept_is_bounded_by_its_size(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmsonar.fleet.serve.app._KEPT_BYTES", 10_000)
    for limit in range(1, 30):
        site.ask("admin", "/api/v1/jobs", limit=limit)
        kept = sum(len(response.body) for _, _, response in site.server.kept.values())
        assert site.server.kept_bytes == kept <= 10_000


def test_a_page_of_a_machine_has_a_bound_and_says_what_it_leaves_out(
    site: Site, hosts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar.fleet.serve.dashboard._OWN_JOBS", 1)
    monkeypatch.setattr("vmsonar.fleet.serve.dashboard._ROWS", 2)
    page = site.ask("admin", f"/machines/{hosts['vm-shared']}", **{"from": "2026-11-16T00:00:00Z"})
    tables = data_of(page.text)["tables"]
    assert (len(tables["jobs"]["spans"]), len(tables["events"]["spans"])) == (1, 2)
    assert tables["jobs"]["rest"] == "and 2 with less CPU time, which are not on this page"
    assert tables["events"]["rest"].endswith("earlier, which are not on this page")


def test_days_of_a_machine_come_page_by_page(place: Site, tmp_path: Path) -> None:
    machine = Machine(loads=[Load(100, "./solve", begin=0, cores=1.0)], start=NOW.replace(hour=23, minute=50))
    archive = file_machine(place.fleet, machine, tmp_path)
    place.catch_up()
    first = place.ask("admin", f"/api/v1/machines/{archive}", limit=1).json()
    (second,) = place.rows("admin", f"machines/{archive}", **httpx.URL(first["next"]).params)
    days = [day["machine"]["first"][:10] if "first" in day["machine"] else day["coverage"]["first"][:10]
            for day in (*first["rows"], second)]  # fmt: skip
    assert days == ["2026-11-16", "2026-11-17"]
    assert place.ask("admin", f"/api/v1/machines/{archive}", limit=2).json()["next"] is None
    assert place.ask("admin", f"/api/v1/machines/{archive}", limit=1000).status_code == 400


def test_a_question_that_takes_too_long_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_by = type(site.prepared).seen_by
    monkeypatch.setattr("vmsonar.fleet.serve.prepared._STEPS", 1)
    monkeypatch.setattr(type(site.prepared), "seen_by", lambda self, scope: seen_by(self, scope, seconds=-1))
    answer = site.ask("admin", "/api/v1/jobs", min_runtime=3)
    assert (answer.status_code, "ask for less" in answer.text) == (503, True)


def test_a_machine_lives_while_it_is_heard(place: Site, tmp_path: Path) -> None:
    """Not by the last sample that was prepared: that may wait, and its clock may be wrong."""
    archive = file_machine(place.fleet, Machine(hostname="vm-slow"), tmp_path)
    place.catch_up()

    def state(*heard_ago: timedelta) -> str:
        holding = Holding(
            archive=archive, machine_id="0" * 32, arrivals=[NOW - each for each in heard_ago],
            reached=[NOW - each for each in heard_ago],
        )  # fmt: skip
        write_holding(place.fleet, holding)
        place.server.listened = -1e9
        age(place, 100)
        (machine,) = place.rows("admin", "fleet")[0]["machines"]
        assert place.rows("admin", "machines", state=machine["state"])
        return machine["state"]

    hour = timedelta(hours=1)
    assert state(10 * hour) == "lost"
    assert state(timedelta(minutes=5)) == "alive"
    # One that ships every four hours is not late after five.
    assert state(13 * hour, 9 * hour, 5 * hour) == "alive"
    assert state(18 * hour, 14 * hour, 10 * hour) == "late"


def test_links_keep_the_time(site: Site, hosts: dict[str, str]) -> None:
    for time in ("last=7d", "from=2026-11-16T00%3A00%3A00%2B00%3A00&to=2026-11-17T00%3A00%3A00%2B00%3A00"):
        fleet = site.client.get(f"/?{time}", headers={"Authorization": f"Bearer {site.tokens['admin']}"}).text
        (address,) = [
            each for each in data_of(fleet)["tables"]["machines"]["pages"] if hosts["vm-his"] in each
        ]
        assert address == f"/machines/{hosts['vm-his']}?{time}"
        assert (
            f'href="/?{time.replace("&", "&amp;")}"'
            in site.client.get(address, headers={"Authorization": f"Bearer {site.tokens['admin']}"}).text
        )


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nA: b\r\n"])
def test_whoever_says_nothing_more_is_left_soon(
    site: Site, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar.fleet.serve.connection._SECONDS", 0.3)
    with connected(site) as line:
        line.sendall(head)
        assert ended(line)
    # Also one who asked before.
    with connected(site) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(15) == b"HTTP/1.1 200 OK"
        line.sendall(b"GET / HTTP/1.1\r\n")
        assert ended(line)


def test_a_head_without_an_end_is_not_kept(site: Site) -> None:
    with connected(site) as line, suppress(ConnectionError):
        line.sendall(b"GET / HTTP/1.1\r\nA: " + b"x" * 200_000)
        assert ended(line)


def connected(site: Site) -> socket.socket:
    return socket.create_connection((site.client.base_url.host, site.client.base_url.port or 0), timeout=20)


def ended(line: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        while line.recv(10_000):
            pass
    return True


def data_of(page: str) -> Any:
    """What a page shows."""
    return json.loads(zlib.decompress(base64.b64decode(page.partition('id="data">')[2].partition("<")[0])))
