"""Bundles sent to the server by the client that exists and by hand: whole, by parts, twice, hostile."""

import errno
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from vmsonar_archive.bundle.send import mint
from vmsonar_archive.system import files
from vmsonar_archive.system.errors import VmsonarError

from tests.fleet.place import Vm, assert_same
from tests.fleet.serve.place import Site, site_of
from vmsonar.fleet.serve.uploads import _secret
from vmsonar.fleet.store import Fleet


@pytest.fixture
def place(fleet: Fleet, tmp_path: Path) -> Iterator[Site]:
    yield from site_of(fleet, tmp_path / "state", largest=10**6)


def address(place: Site, vm: Vm, name: str, who: str = "vm", size: int | None = None) -> httpx.Response:
    asked = {"archive": vm.archive, "node": "vm0", "name": name, "size": size}
    return place.client.post("/upload", json=asked, headers={"Authorization": f"Bearer {place.tokens[who]}"})


def path_of(answer: httpx.Response) -> str:
    url = answer.json()["url"]
    assert url.startswith("https://fleet.example/upload/")
    return url.removeprefix("https://fleet.example")


@pytest.fixture
def bundle(vm: Vm) -> bytes:
    vm.record(30)
    return vm.bundle("whole.tar").read_bytes()


def test_what_is_acknowledged_is_filed(place: Site, vm: Vm, bundle: bytes) -> None:
    where = path_of(address(place, vm, "a.tar", size=len(bundle)))
    answer = place.client.put(where, content=bundle)
    assert (answer.status_code, answer.json()["accepted"]) == (201, True)
    assert answer.headers["ETag"] == f'"{hashlib.md5(bundle).hexdigest()}"'
    assert_same(place.fleet, [vm])
    # A lost answer costs no second transfer: the client compares what HEAD says.
    again = place.client.put(where, content=bundle)
    known = place.client.head(where)
    assert (again.status_code, again.headers["ETag"]) == (412, known.headers["ETag"])
    assert int(known.headers["Content-Length"]) == len(bundle)
    assert list(place.fleet.incoming.iterdir()) == []


def test_the_answer_is_what_the_client_takes(place: Site, vm: Vm) -> None:
    answer = mint._decoded(address(place, vm, "a.tar").content, "here")
    from datetime import UTC, datetime

    assert mint.check(answer, "here", datetime.now(UTC)).expires is not None


def test_what_broke_off_is_continued(place: Site, vm: Vm, bundle: bytes) -> None:
    where, half = path_of(address(place, vm, "a.tar")), len(bundle) // 2
    first = place.client.put(
        where, content=bundle[:half], headers={"Content-Range": f"bytes 0-{half - 1}/{len(bundle)}"}
    )
    assert (first.status_code, first.headers["Upload-Offset"]) == (202, str(half))
    assert place.client.head(where).headers["Upload-Offset"] == str(half)
    gap = place.client.put(
        where, content=b"x", headers={"Content-Range": f"bytes {half + 5}-{half + 5}/{len(bundle)}"}
    )
    assert (gap.status_code, gap.headers["Upload-Offset"]) == (409, str(half))
    rest = place.client.put(
        where,
        content=bundle[half:],
        headers={"Content-Range": f"bytes {half}-{len(bundle) - 1}/{len(bundle)}"},
    )
    assert rest.status_code == 201
    assert_same(place.fleet, [vm])


def test_a_sender_that_goes_away_leaves_what_it_sent(place: Site, vm: Vm, bundle: bytes) -> None:
    where = path_of(address(place, vm, "a.tar"))
    with sending(place, where, len(bundle), bundle[:1000]):
        pass
    assert eventually(lambda: place.client.head(where).headers["Upload-Offset"] == "1000")
    rest = bundle[1000:]
    answer = place.client.put(
        where, content=rest, headers={"Content-Range": f"bytes 1000-{len(bundle) - 1}/{len(bundle)}"}
    )
    assert answer.status_code == 201


def eventually(holds) -> bool:  # type: ignore[no-untyped-def]
    waiting = threading.Event()
    return any(holds() or waiting.wait(0.05) for _ in range(200))


def test_what_does_not_verify_is_set_aside(place: Site, vm: Vm, bundle: bytes) -> None:
    broken = bytearray(bundle)
    broken[len(broken) // 2] ^= 1
    answer = place.client.put(path_of(address(place, vm, "a.tar")), content=bytes(broken))
    assert (answer.status_code, answer.json()["accepted"]) == (422, False)
    assert str(place.fleet.root) not in answer.text, "the sender learns nothing of our folders"
    assert len(list(place.fleet.refused.glob("*.tar"))) == 1
    assert place.fleet.ids() == []
    assert list(place.fleet.incoming.iterdir()) == []
    assert place.client.put(path_of(address(place, vm, "a.tar")), content=bundle).status_code == 201


def test_where_we_are_at_fault_the_sender_keeps_it(place: Site, vm: Vm, bundle: bytes) -> None:
    assert place.client.put(path_of(address(place, vm, "a.tar")), content=bundle).status_code == 201
    archive_json = place.fleet.archive(vm.archive) / "archive.json"
    known = archive_json.read_bytes()
    archive_json.write_bytes(b"{")
    where = path_of(address(place, vm, "b.tar"))
    answer = place.client.put(where, content=bundle)
    assert (answer.status_code, "broken_archive" in answer.text) == (503, True)
    assert str(place.fleet.root) not in answer.text
    assert list(place.fleet.incoming.iterdir()) == []
    archive_json.write_bytes(known)
    assert place.client.put(where, content=bundle).status_code == 201


def test_a_full_disk_acknowledges_nothing(
    place: Site, vm: Vm, bundle: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, write_all = path_of(address(place, vm, "a.tar")), files.write_all
    for room in (0, 1000, len(bundle) + 100, len(bundle) + 2000):
        left = [room]

        def full(descriptor: int, data: bytes, left: list[int] = left) -> None:
            left[0] -= len(data)
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            write_all(descriptor, data)

        with monkeypatch.context() as patch:
            patch.setattr(files, "write_all", full)
            assert place.client.put(where, content=bundle).status_code == 507
    assert place.client.put(where, content=bundle).status_code == 201
    assert_same(place.fleet, [vm])


def test_a_machines_token_speaks_for_it_alone(place: Site, machines, vm: Vm, bundle: bytes) -> None:  # type: ignore[no-untyped-def]
    other = machines()
    other.record(3)
    refused = place.client.put(
        path_of(address(place, other, "b.tar", "one-vm")), content=other.bundle("b.tar").read_bytes()
    )
    assert (refused.status_code, refused.json()["reason"]) == (422, "other_machine")
    assert place.client.put(path_of(address(place, vm, "a.tar", "one-vm")), content=bundle).status_code == 201


def test_an_address_is_for_its_name_and_time(place: Site, vm: Vm, bundle: bytes) -> None:
    where = path_of(address(place, vm, "a.tar"))
    assert place.client.put(where.replace("a.tar", "b.tar"), content=bundle).status_code == 401
    assert (
        place.client.put(where[:-1] + ("0" if where[-1] != "0" else "1"), content=bundle).status_code == 401
    )
    place.uploads._now = lambda: 1e12
    assert place.client.put(where, content=bundle).status_code == 401


def test_limits(place: Site, vm: Vm) -> None:
    assert address(place, vm, "a.tar", size=10**7).status_code == 413
    assert address(place, vm, "../a.tar").status_code == 400
    where = path_of(address(place, vm, "a.tar"))
    assert place.client.put(where, content=b"x" * (10**6 + 1)).status_code == 413
    assert place.client.put(where, content=iter([b"x"])).status_code == 411
    # Whatever a sender says that it is.
    place.uploads._a_minute = 20
    names = ("archive", "node")
    for number in range(30):
        asked = dict.fromkeys(names, f"{number:08}-0000-4000-8000-000000000000") | {"name": "a.tar"}
        headers = {"Authorization": f"Bearer {place.tokens['vm']}"}
        code = place.client.post("/upload", json=asked, headers=headers).status_code
    assert code == 429


def test_the_same_at_the_same_time_is_sent_again_later(place: Site, vm: Vm, bundle: bytes) -> None:
    """503, because the client gives up at 409: somebody else's bundle would lie there."""
    where = path_of(address(place, vm, "a.tar"))
    with sending(place, where, len(bundle), bundle[:1000]):
        busy = place.client.put(where, content=bundle)
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "10")
    assert eventually(lambda: place.client.put(where, content=bundle).status_code == 201)


def test_whoever_falls_silent_does_not_keep_the_name(place: Site, vm: Vm, bundle: bytes) -> None:
    place.uploads._idle = 0.2
    where = path_of(address(place, vm, "a.tar"))
    with sending(place, where, len(bundle), bundle[:1000]) as line:
        assert line.recv(100).startswith(b"HTTP/1.1 408")
        assert place.client.put(where, content=bundle).status_code == 201


def test_what_lies_unfinished_is_bounded(place: Site, vm: Vm) -> None:
    codes = []
    for number in range(6):
        where = path_of(address(place, vm, f"{number}.tar"))
        part = {"Content-Range": "bytes 0-899999/1000000"}
        codes.append(place.client.put(where, content=bytes(900_000), headers=part).status_code)
    assert codes == [202] * 4 + [503] * 2
    # A day later what broke off is gone, and there is room again.
    place.uploads.tidy()
    assert len(list(place.fleet.incoming.iterdir())) >= 4
    for path in place.fleet.incoming.iterdir():
        a_day_ago = path.stat().st_mtime - 24 * 3600
        os.utime(path, (a_day_ago, a_day_ago))
    place.uploads._tidied = 0
    where = path_of(address(place, vm, "9.tar"))
    assert place.client.put(where, content=bytes(900_000), headers=part).status_code == 202


def test_who_announces_much_and_sends_little_takes_nobodys_room(place: Site, vm: Vm, bundle: bytes) -> None:
    with ExitStack() as lines:
        for number in range(6):
            where = path_of(address(place, vm, f"slow-{number}.tar"))
            lines.enter_context(sending(place, where, 10**6, b"x"))
        assert place.client.put(path_of(address(place, vm, "a.tar")), content=bundle).status_code == 201


def test_one_sender_leaves_room_for_others(place: Site, vm: Vm) -> None:
    """What is on its way from one token and address is at most half of what may lie unfinished."""
    me = ("vm", "127.0.0.1")
    place.uploads._coming[me] = 2 * 10**6 - 1000
    content = bytes(500_000)
    here, elsewhere = (path_of(address(place, vm, f"{name}.tar")) for name in "ab")
    assert place.client.put(here, content=content).status_code == 503
    del place.uploads._coming[me]
    place.uploads._coming["vm", "192.0.2.1"] = 2 * 10**6 - 1000
    assert place.client.put(elsewhere, content=content).status_code == 422


def test_a_trickle_is_a_sender_that_broke_off(place: Site, vm: Vm, bundle: bytes) -> None:
    """A byte now and then would hold a connection, a file and its name for years."""
    place.uploads._idle = 0.5
    where = path_of(address(place, vm, "a.tar"))
    with sending(place, where, len(bundle), bundle[:1000]) as line:
        line.settimeout(0.1)
        said = b""
        for at in range(1000, 1100):
            line.sendall(bundle[at : at + 1])
            with suppress(TimeoutError):
                said = line.recv(100)
                break
        assert said.startswith(b"HTTP/1.1 408")


def test_a_key_that_is_cut_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "ticket.key"
    assert len(_secret(path)) == 32
    assert _secret(path) == path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["ticket.key"]
    path.write_bytes(b"")
    with pytest.raises(VmsonarError, match="is no key"):
        _secret(path)


@contextmanager
def sending(place: Site, where: str, size: int, begin: bytes) -> Iterator[socket.socket]:
    """Somebody who has begun to send and does not go on."""
    host = place.client.base_url
    with socket.create_connection((host.host, host.port), timeout=20) as line:
        line.sendall(f"PUT {where} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + begin)
        assert eventually(lambda: any(place.fleet.incoming.iterdir()))
        yield line
