"""Who is let in, and what is said to and of those who are not."""

import base64
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from vmsonar_archive.system.errors import UsageError

from tests.fleet.serve.place import PEOPLE, Site
from vmsonar.config.shipping import FleetSection
from vmsonar.fleet.serve.access import (
    Access,
    Authenticator,
    Denied,
    Proxy,
    Rights,
    Token,
    new_token,
    read_access,
)
from vmsonar.fleet.serve.prepared import EVERYTHING, Scope
from vmsonar.fleet.serve.questions import QUESTIONS
from vmsonar.fleet.serve.server import Wishes, _check
from vmsonar.host.listening import Address


def test_nobody_without_a_token(site: Site) -> None:
    paths = [question.path for question in QUESTIONS] + [
        "/",
        "/machines/{archive}",
        "/api/v1/openapi.json",
        "/metrics",
    ]
    for path in paths:
        place = path.format(archive="x", series="y")
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic !"},
            {"X-Remote-User": "admin"},
        ):
            answer = site.client.get(place, headers=headers)
            assert (answer.status_code, list(answer.json())) == (401, ["error"]), place
            assert "Basic" in answer.headers["WWW-Authenticate"]


def test_each_denial_is_a_line_without_the_secret(site: Site) -> None:
    site.denied.clear()
    site.client.get("/api/v1/jobs?user=x", headers={"Authorization": "Bearer hush-hush"})
    site.ask("vm", "/api/v1/jobs")
    assert site.denied == [
        "denied 401 GET /api/v1/jobs to nobody from 127.0.0.1: no such token",
        "denied 403 GET /api/v1/jobs to vm from 127.0.0.1: the role upload sees nothing",
    ]


def test_roles_end_where_they_should(site: Site) -> None:
    for who, rights in PEOPLE.items():
        sees = site.ask(who, "/api/v1/fleet").status_code
        asks = site.client.post(
            "/upload", json={}, headers={"Authorization": f"Bearer {site.tokens[who]}"}
        ).status_code
        told = site.ask(who, "/metrics").status_code
        expected = {"admin": (200, 400, 200), "upload": (403, 400, 403)}.get(rights.role, (200, 403, 403))
        assert (sees, asks, told) == expected


def test_a_browser_gives_the_token_as_its_password(site: Site) -> None:
    given = base64.b64encode(f"anybody:{site.tokens['anna']}".encode()).decode()
    answer = site.client.get("/", headers={"Authorization": f"Basic {given}"})
    assert answer.status_code == 200
    assert "Seen by anna, user" in answer.text


def test_the_proxy_is_believed_on_its_socket_only() -> None:
    access = Access(proxy=Proxy(people={"root": Rights(role="admin")}))
    behind, before = Authenticator(access, behind_proxy=True), Authenticator(access)
    assert behind.asker(Headers({"x-remote-user": "carla"})).scope == Scope("carla")
    assert behind.asker(Headers({"x-remote-user": "root"})).scope == EVERYTHING
    for door, headers in (
        (before, {"x-remote-user": "root"}),
        (behind, {}),
        (behind, {"x-remote-user": b"a\\nb\\n".decode("unicode_escape")}),
    ):
        with pytest.raises(Denied):
            door.asker(Headers(headers))


def test_the_proxys_word_counts_whatever_else_it_passes_on() -> None:
    """It may have asked for a password itself; and where two names come, one of them is from outside."""
    token, kept = new_token()
    access = Access(tokens=[Token(name="vm", sha256=kept, role="upload")], proxy=Proxy())
    door = Authenticator(access, behind_proxy=True)
    named = {"x-remote-user": "carla", "authorization": "Basic Y2FybGE6aHVzaA=="}
    assert door.asker(Headers(named)).scope == Scope("carla")
    assert door.asker(Headers({"authorization": f"Bearer {token}"})).name == "vm"
    two = [(b"x-remote-user", b"root"), (b"x-remote-user", b"carla")]
    with pytest.raises(Denied, match="two"):
        door.asker(Headers(raw=two))


def test_open_is_for_this_machine_alone() -> None:
    door = Authenticator(Access(), open_to_all=True)
    assert door.asker(Headers({"host": "localhost:8060"})).role == "admin"
    assert door.asker(Headers({"host": "[::1]:8060"})).role == "admin"
    for host in ("evil.example:8060", "127.0.0.1.evil.example", ""):
        with pytest.raises(Denied):
            door.asker(Headers({"host": host}))


def test_every_token_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a comparison whose time says nothing, and whether or not one fitted before."""
    import hmac

    made = [new_token() for _ in range(5)]
    tokens = [Token(name=str(number), sha256=kept, role="admin") for number, (_, kept) in enumerate(made)]
    calls: list[str] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(
        "vmsonar.fleet.serve.access.hmac.compare_digest", lambda a, b: calls.append(a) or compare(a, b)
    )
    assert (
        Authenticator(Access(tokens=tokens)).asker(Headers({"authorization": f"Bearer {made[0][0]}"})).name
        == "0"
    )
    assert calls == [token.sha256 for token in tokens]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokens: [{name: a, sha256: x, role: admin}]", "tokens[0].sha256"),
        (f"tokens: [{{name: a, sha256: {'0' * 64}, role: user}}]", "the role user needs `user`"),
        (f"tokens: [{{name: a, sha256: {'0' * 64}, role: project}}]", "the role project needs `machines`"),
        (f"tokens: [{{name: a, sha256: {'0' * 64}, role: chief}}]", "chief"),
        ("token: []", "token: unknown key; did you mean tokens?"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as told:
        read_access(path)
    assert said in str(told.value)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text("tokens: []")
    path.chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        read_access(path)


@pytest.mark.parametrize(
    ("listen", "open_to_all", "said"),
    [
        ("0.0.0.0:8060", True, "loopback"),
        ("0.0.0.0:8060", False, "nobody could ask"),
        ("/run/x.sock", True, "loopback"),
        ("127.0.0.1:8060", False, "nobody could ask"),
    ],
)
def test_what_nobody_meant_does_not_start(listen: str, open_to_all: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _check(Wishes(Address.parse(listen), Access(), None, FleetSection(), open_to_all=open_to_all))


def test_beyond_loopback_only_with_tls() -> None:
    access = Access(tokens=[Token(name="a", sha256="0" * 64, role="admin")])
    with pytest.raises(UsageError, match="--tls-cert"):
        _check(Wishes(Address.parse("0.0.0.0:8060"), access, None, FleetSection()))
    _check(Wishes(Address.parse("127.0.0.1:8060"), access, None, FleetSection()))
