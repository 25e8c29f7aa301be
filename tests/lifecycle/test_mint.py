"""An endpoint that mints the URL of each upload: asked each time, believed no more than any other server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from vmsonar_archive.bundle.send import mint
from vmsonar_archive.bundle.send.mint import Mint, TryAgain
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.system.errors import UsageError, VmsonarError

from tests.archive.bundle.proxy import proxying
from tests.archive.bundle.tls_server import Store, running
from tests.lifecycle.minter import TOKEN, Minter, minting
from tests.lifecycle.vm import Vm, bundles
from vmsonar.lifecycle.target import parse_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue("mint")


@pytest.fixture
def store(certificate) -> Iterator[Store]:
    with running(certificate) as server:
        yield server


@pytest.fixture
def minter(certificate, store) -> Iterator[Minter]:
    with minting(certificate, f"https://localhost:{store.server_port}/bucket") as server:
        yield server


class MintedVm(Vm):
    def save(self, minter: Minter, *more: str) -> tuple[int, dict]:
        return self.teardown(*more, to=f"mint+{minter.url}", save={"token_file": str(self.root / "token")})


@pytest.fixture
def vm(tmp_path, authority) -> MintedVm:
    vm = MintedVm(tmp_path, authority)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    return vm


def test_each_increment_gets_a_fresh_url(vm, minter, store):
    assert vm.save(minter, "--increment") == (
        0,
        {
            "delivered": [f"https://localhost:{store.server_port}/…"],
            "waiting": [],
            "forwarded": None,
            "forward_trouble": None,
            "undeliverable": 0,
            "troubles": [],
            "damaged": False,
        },
    )
    vm.record(4, hours=3)
    assert vm.save(minter)[0] == 0
    assert list(store.stored) == ["/bucket/1.tar", "/bucket/2.tar"]
    first, second = minter.asked
    assert first["archive"] == read_identity(vm.archive).archive
    assert (first["node"], first["path"]) == ("web1", "/mint?tenant=canary-query")
    assert first["name"].startswith("web1_")
    assert first["name"].endswith(".tar")
    assert first["name"] != second["name"]
    assert [one["size"] for one in minter.asked] == [len(content) for content in store.stored.values()]
    assert store.requests[0][2]["x-ms-blob-type"] == "BlockBlob"
    seen = []
    for number, content in enumerate(store.stored.values()):
        (vm.root / f"{number}.tar").write_bytes(content)
        seen += vm.numbers(vm.root / f"{number}.tar")
    assert seen == [*range(2, 42), *range(43, 47)]


def test_a_url_that_expired_on_the_way_is_replaced_by_a_fresh_one(vm, minter, store):
    store.plan = ["403"]
    assert vm.save(minter)[0] == 0
    assert list(store.stored) == ["/bucket/2.tar"]
    assert len(minter.asked) == 2


def test_a_busy_endpoint_is_asked_again(vm, minter, store):
    minter.plan = [503]
    assert vm.save(minter)[0] == 0
    assert len(minter.asked) == 2


def test_what_gets_no_url_waits_and_goes_out_with_one(vm, minter, store):
    (vm.root / "token").write_text("canary-of-another")
    code, said = vm.save(minter)
    assert (code, said["delivered"], store.stored) == (3, [], {})
    where = f"https://localhost:{minter.server_port}/…"
    assert said["troubles"] == [f"{where} gives us no URL (401): look at save.token_file"]
    (waits,) = bundles(vm.waiting)
    (vm.root / "token").write_text(TOKEN)
    assert vm.save(minter, "--resume")[0] == 0
    assert minter.asked[-1]["name"] == waits.name
    assert minter.asked[-1]["size"] == len(store.stored["/bucket/2.tar"])
    assert bundles(vm.waiting) == []


def test_the_token_stays_secret(vm, minter):
    (vm.root / "token").chmod(0o644)
    code, said = vm.save(minter)
    assert code == 3
    assert "everybody can read" in said["troubles"][0]
    assert minter.asked == []


def ask(minter: Minter, answer: object) -> mint.Place:
    minter.plan = [answer]
    return mint.ask(Mint(url=minter.url, token=TOKEN, archive="a", node="n"), "x.tar", 5)


@pytest.fixture
def trusted(monkeypatch, authority):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))


PAST = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
SIGNED_IN_THE_PAST = "https://b.example/k?X-Amz-Date=20200101T000000Z&X-Amz-Expires=60&X-Amz-Signature=canary"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (403, "look at save.token_file"),
        (302, "redirects are not followed"),
        (404, "it answers 404"),
        (b"", "something else than"),
        (b"<html>canary</html>", "something else than"),
        (b'{"url": 7}', "something else than"),
        (b"[" * 50_000, "something else than"),
        (b" " * 70_000 + b'{"url": "https://x/"}', "more than 64 KiB"),
        ({"url": "http://x/canary"}, "else than a plain https:// URL"),
        ({"url": "file:///etc/canary"}, "else than a plain https:// URL"),
        ({"url": "https://user:canary@x/"}, "else than a plain https:// URL"),
        ({"url": "https://x/canary\r\nHost: y"}, "else than a plain https:// URL"),
        ({"url": "s3://canary/x"}, "else than a plain https:// URL"),
        ({"url": "https://x/", "headers": {"Host": "canary"}}, "not for others to set"),
        ({"url": "https://x/", "headers": {"Content-Length": "0"}}, "not for others to set"),
        ({"url": "https://x/", "headers": {"a": "b\r\nHost: canary"}}, "not for others to set"),
        ({"url": "https://x/", "headers": {"a b": "canary"}}, "not for others to set"),
        ({"url": "https://x/", "headers": {f"a{n}": "" for n in range(30)}}, "more than 20 headers"),
        ({"url": "https://x/canary", "expires": PAST}, "expired at"),
        ({"url": SIGNED_IN_THE_PAST}, "expired at 2020-01-01 00:01:00Z"),
    ],
)
def test_hostile_answers_are_refused_without_showing_them(minter, trusted, answer, message):
    with pytest.raises(VmsonarError, match=message) as caught:
        ask(minter, answer)
    assert "canary" not in str(caught.value)
    assert len(minter.asked) == 1


def test_what_may_go_well_the_next_time(minter, trusted, monkeypatch):
    with pytest.raises(TryAgain, match="answers 429"):
        ask(minter, 429)
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    with pytest.raises(TryAgain, match="certificate is not trusted"):
        ask(minter, None)
    assert len(minter.asked) == 1


def test_the_endpoint_is_asked_through_the_proxy(minter, trusted, monkeypatch):
    with proxying() as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        assert ask(minter, {"url": "https://x/"}).url == "https://x/"
        assert len(proxy.asked) == 1


@pytest.mark.parametrize(
    ("to", "token", "message"),
    [
        ("mint+http://x/", None, "given as mint"),
        ("mint+https://", None, "given as mint"),
        ("mint+https://u:canary@x/", None, "given as mint"),
        ("mint+https://x/{node}", None, "no {…} in its URL"),
        ("https://x/{time}", "token", "goes with save.to: mint"),
    ],
)
def test_what_could_never_work(to, token, message):
    with pytest.raises(UsageError, match=message.replace("{…}", r"\{…\}")) as caught:
        parse_target(to, token)
    assert "canary" not in str(caught.value)


def doctor(vm: Vm) -> list[tuple[bool, str | None]]:
    done = vm.run("doctor", "--json")
    return [
        (one["available"], one.get("reason")) for one in json.loads(done.stdout) if one["collector"] == "save"
    ]


def test_doctor_asks_for_a_url(vm, minter):
    where = f"https://localhost:{minter.server_port}/…"
    vm.configure(f"mint+{minter.url}", save={"token_file": str(vm.root / "token")})
    minter.expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert doctor(vm) == [(True, None)]
    assert minter.asked[0]["name"] == "vmsonar-check.tar"
    minter.expires = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    ((available, reason),) = doctor(vm)
    assert not available
    assert "expires in" in reason
    minter.plan = [500]
    assert doctor(vm) == [(False, f"{where} gives no URL: it answers 500")]
    (vm.root / "token").unlink()
    assert doctor(vm)[0][1].startswith("save.token_file: cannot read ")
