"""Nobody learns anything of another user's jobs: not by a row, a count, a name, a time or an error."""

import re
import sqlite3
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fleet.serve.place import HIS, NOW, Site, hers, make_fleet, shared_with_others, site_of
from vmsonar.fleet.serve.dashboard import PAGES, PageSpan
from vmsonar.fleet.serve.prepared import Prepared, Scope
from vmsonar.fleet.serve.questions import QUESTIONS, Asked, NotThere, WrongQuestion

pytestmark = pytest.mark.filterwarnings("ignore")
_ALL = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
_TIMES = st.sampled_from(
    [
        None,
        "2026-11-16T00:00:00Z",
        "2026-11-16T08:05:00Z",
        "2026-11-16T08:12:00+01:00",
        "2026-11-17T00:00:00Z",
    ]
)


@pytest.fixture(scope="session")
def known(site: Site, hosts: dict[str, str]) -> dict[str, list[str]]:
    """All that a hostile asker may have heard of: every id and name that there is."""
    jobs = site.rows("admin", "jobs")
    return {
        "archives": [*hosts.values(), "00000000-0000-4000-8000-000000000000", "' OR 1=1 --"],
        "series": [job["series_id"] for job in jobs],
        "his": [job["series_id"] for job in jobs if job["user"] == "bert"],
        "users": ["anna", "bert", "", "*", "%"],
        "programs": sorted({str(job["program"]) for job in jobs}),
        "hosts": [*hosts, "vm-*"],
    }


def draw_wish(data: st.DataObject, kind: type, known: dict[str, list[str]]) -> dict[str, object]:
    """Parameters of a question, as somebody might send them who looks for what is not theirs."""
    choices = {
        "from": _TIMES, "to": _TIMES, "archive": st.sampled_from([None, *known["archives"]]),
        "user": st.sampled_from([None, *known["users"]]), "program": st.sampled_from([None, *known["programs"]]),
        "host": st.sampled_from([None, *known["hosts"]]), "state": st.sampled_from([None, "alive", "lost", "gone"]),
        "kind": st.sampled_from([None, "exit", "oom", "container"]), "limit": st.integers(1, 5),
        "offset": st.integers(0, 4), "min_runtime": st.sampled_from([None, 0, 600, 1e6]),
        "last": st.sampled_from([None, "1d", "7d"]),
    }  # fmt: skip
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    sorts = [field.type for field in msgspec.structs.fields(kind) if field.name == "sort"]
    choices["sort"] = st.sampled_from(sorts[0].__args__ if sorts else ["cpu"])
    drawn = {name: data.draw(choices[name], label=name) for name in names}
    return {name: value for name, value in drawn.items() if value is not None}


def draw_places(data: st.DataObject, path: str, known: dict[str, list[str]]) -> dict[str, str]:
    chosen = {"archive": known["archives"], "series": known["series"]}
    return {name: data.draw(st.sampled_from(each)) for name, each in chosen.items() if f"{{{name}}}" in path}


@given(data=st.data())
@_ALL
def test_no_word_of_his_reaches_her(site: Site, known: dict[str, list[str]], data: st.DataObject) -> None:
    paths = {question.path: question.wish for question in QUESTIONS} | dict.fromkeys(PAGES, PageSpan)
    path = data.draw(st.sampled_from(sorted(paths)))
    wish, places = draw_wish(data, paths[path], known), draw_places(data, path, known)
    answer = site.ask("anna", path.format(**places), **wish)
    assert answer.status_code in (200, 400, 404)
    asked = [str(value) for value in (*wish.values(), *places.values())]
    said = answer.text
    for word in asked:  # what she sends comes back in `next` and in errors
        said = said.replace(word, "")
    if path in PAGES and answer.status_code == 200:
        said += unpacked(answer.text)
    assert not [word for word in (*HIS, *known["his"]) if word in said]


def unpacked(page: str) -> str:
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(page.partition('id="data">')[2].partition("<")[0])).decode()


@pytest.fixture(scope="session")
def without_him(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same answers, as if nobody but anna had ever been there."""
    path = tmp_path_factory.mktemp("alone") / "answers.db"
    with sqlite3.connect(site.prepared.path) as source, sqlite3.connect(path) as target:
        source.backup(target)
        target.execute("DELETE FROM answer WHERE user IS NOT 'anna'")
    return Prepared(path)


@pytest.fixture(scope="session")
def without_others(site: Site, hosts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same answers, as if there were no machine but hers."""
    path = tmp_path_factory.mktemp("alone") / "answers.db"
    with sqlite3.connect(site.prepared.path) as source, sqlite3.connect(path) as target:
        source.backup(target)
        target.execute("DELETE FROM answer WHERE archive != ?", (hosts["vm-hers"],))
    return Prepared(path)


@pytest.mark.parametrize("scope", [Scope("anna"), Scope(None, ("vm-her*",))], ids=["user", "project"])
@given(data=st.data())
@_ALL
def test_what_she_is_told_does_not_depend_on_others(
    site: Site,
    without_him: Prepared,
    without_others: Prepared,
    known: dict[str, list[str]],
    scope: Scope,
    data: st.DataObject,
) -> None:
    """The answer is the same to the byte where other rows do not exist: nothing of them is in it, not even a count."""
    alone = without_him if scope.user else without_others
    question = data.draw(st.sampled_from(QUESTIONS))
    wish = msgspec.convert(draw_wish(data, question.wish, known), question.wish, strict=False)
    places = draw_places(data, question.path, known)
    answers = []
    for prepared in (site.prepared, alone):
        with prepared.seen_by(scope) as seen:
            try:
                asked = Asked(seen, wish, question.path, NOW)
                answers.append(msgspec.json.encode(question.answer(asked, **places)))
            except (NotThere, WrongQuestion) as error:
                answers.append(repr(error).encode())
    assert answers[0] == answers[1]


@pytest.fixture(scope="session")
def among_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Her machines as they are, while others than bert had the rest of the cores for other work, and prepared anew."""
    folder = tmp_path_factory.mktemp("others")
    fleet, _ = make_fleet(folder, shared_with_others(), hers())
    for site in site_of(fleet, folder / "state"):
        site.catch_up()
        yield site


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def told(site: Site, path: str) -> list[str]:
    """The rows of an answer or the words of a page, without the ids, which differ from recording to recording."""
    answer = site.ask("anna", path)
    assert answer.status_code == 200, answer.text
    if path.startswith("/api"):
        document = answer.json()
        # Who was heard last comes first: both archives are of one moment.
        return sorted(_ID.sub("", str(row)) for row in (*document["rows"], *document["archives"]))
    return sorted(re.findall(r"[^\"<>,{}]+", _ID.sub("", unpacked(answer.text))))


@pytest.mark.parametrize("path", [
    *(question.path for question in QUESTIONS if "{" not in question.path and "timeline" not in question.path),
    "/",
])  # fmt: skip
def test_what_others_did_makes_no_difference_to_her(site: Site, among_others: Site, path: str) -> None:
    """Nothing of them was worked into what was prepared for her: not how many they were, nor what they used."""
    assert told(site, path) == told(among_others, path)


def test_neither_do_they_to_the_story_of_her_job(site: Site, among_others: Site) -> None:
    for page in ("/api/v1/jobs/{archive}/{series}", "/machines/{archive}", "/api/v1/machines/{archive}"):
        said = []
        for each in (site, among_others):
            (mine,) = [job for job in each.rows("anna", "jobs") if job["hostname"] == "vm-shared"]
            said.append(told(each, page.format(archive=mine["archive"], series=mine["series_id"])))
        assert said[0] == said[1], page


def test_she_sees_her_own(site: Site, hosts: dict[str, str]) -> None:
    assert {job["user"] for job in site.rows("anna", "jobs")} == {"anna"}
    assert {row["hostname"]: row["jobs"] for row in site.rows("anna", "machines")} == {
        "vm-shared": 1,
        "vm-hers": 1,
    }
    assert [group["name"] for group in site.rows("anna", "users")] == ["anna"]
    (card,) = site.rows("anna", "gpus")
    assert (card["gpu_util"]["mean"], len(card["jobs"])) == (None, 1)
    (fleet,) = site.rows("anna", "fleet")
    assert (fleet["jobs"], fleet["idle_core_hours"], [share["name"] for share in fleet["users"]]) == (
        2,
        None,
        ["anna"],
    )
    gaps = site.rows("anna", "gaps")
    assert gaps
    assert all(gap["kind"] == "no_samples" and gap["detail"] is None for gap in gaps)
    (row,) = site.rows("anna", f"machines/{hosts['vm-shared']}")
    assert (row["cores"]["mean"], row["used_share"], row["verdicts"]) == (None, None, [])


def test_what_is_his_is_not_there_for_her(
    site: Site, hosts: dict[str, str], known: dict[str, list[str]]
) -> None:
    """And the error is the one of what never was."""
    never = site.ask("anna", f"/api/v1/jobs/{hosts['vm-shared']}/x")
    his = site.ask("anna", f"/api/v1/jobs/{hosts['vm-shared']}/{known['his'][0]}")
    assert (never.status_code, his.status_code) == (404, 404)
    assert his.text.replace(known["his"][0], "x") == never.text
    assert site.ask("anna", f"/api/v1/machines/{hosts['vm-his']}").status_code == 404
    assert site.ask("bert", f"/api/v1/machines/{hosts['vm-his']}").status_code == 200


def test_a_project_sees_its_machines_whole_and_no_other(site: Site, hosts: dict[str, str]) -> None:
    assert [row["hostname"] for row in site.rows("hers", "machines")] == ["vm-hers"]
    (row,) = site.rows("hers", f"machines/{hosts['vm-hers']}")
    assert row["use"]["cores"]["mean"] is not None
    for view in ("jobs", "containers", "gpus", "users", "programs", "events", "advice", "gaps", "fleet"):
        text = site.ask("hers", f"/api/v1/{view}").text
        assert not [word for word in (*HIS, "vm-shared") if word in text]
    assert site.ask("hers", f"/api/v1/machines/{hosts['vm-shared']}").status_code == 404


_NOT_HERS = (
    "SELECT * FROM answer",
    "SELECT COUNT(*) FROM main.answer",
    "SELECT * FROM unit",
    "SELECT * FROM temp.me",
    "SELECT * FROM sqlite_master",
    "PRAGMA table_info(answer)",
    "DELETE FROM answer",
    "ATTACH ':memory:' AS x",
    "SELECT doc FROM visible WHERE number IN (SELECT rowid FROM main.answer)",
)


def test_sqlite_itself_refuses_the_table(site: Site) -> None:
    with site.prepared.seen_by(Scope("anna")) as seen:
        for sql in _NOT_HERS:
            with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized|readonly"):
                seen.rows(sql)


def test_her_verdicts_name_nobody(site: Site) -> None:
    """A job that waited for another's cores is told so; not whose they were, nor how many."""
    (starved,) = [
        verdict
        for advice in site.rows("anna", "advice")
        for verdict in advice["verdicts"]
        if verdict["rule"] == "starved"
    ]
    assert "while others had the cores" in starved["says"]
    assert not [name for name in starved["figures"] if name.startswith(("others", "node"))]
