"""Whatever is sent to a path of the OpenAPI document: no answer is the server's fault, and each is what it says."""

from urllib.parse import quote, quote_from_bytes

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from tests.fleet.serve.place import Site

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("who", ["admin", "anna"])
def test_no_question_makes_the_server_fail(site: Site, who: str) -> None:
    headers = {"Authorization": f"Bearer {site.tokens[who]}"}
    address = str(site.client.base_url)
    schema = schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json", headers=headers)
    found = [operation.ok() for operation in schema.get_all_operations()]
    assert len(found) == 13
    for operation in found:

        @given(case=operation.as_strategy())
        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def ask(case: schemathesis.Case) -> None:
            answer = case.call(base_url=address, headers=headers)
            assert answer.status_code < 500, answer.text
            case.validate_response(answer, checks=(not_a_server_error, *_DECLARED), headers=headers)

        ask()


_DECLARED = (
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
)


@given(
    path=st.text(max_size=40),
    query=st.binary(max_size=60),
    header=st.text(st.characters(codec="latin-1"), max_size=60),
)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_no_path_query_or_header_does(site: Site, path: str, query: bytes, header: str) -> None:
    tag = "".join(char for char in header if char.isprintable() and ord(char) < 127)
    for place in (
        quote(path, safe="/"),
        "api/v1/jobs",
        "",
        "machines/" + quote(path, safe=""),
        "assets/" + quote(path, safe=""),
    ):
        for authority in (f"Bearer {site.tokens['anna']}", f"Basic {tag}".strip(), tag.strip()):
            answer = site.client.get(
                f"/{place}?{quote_from_bytes(query, safe='=&')}",
                headers={"Authorization": authority, "If-None-Match": tag.strip()},
            )
            assert answer.status_code < 500


_NAMES = st.one_of(st.sampled_from(["a.tar", "..", "a/../b", ".tar", "x" * 300]), st.text(max_size=20))
_RANGES = st.one_of(
    st.none(),
    st.just("bytes 0-9/10"),
    st.from_regex(r"bytes -?[0-9]{1,20}-[0-9]{0,20}/[0-9*]{1,20}", fullmatch=True),
)


@given(
    body=st.one_of(
        st.binary(max_size=200), st.from_type(dict[str, int | str | None]).map(msgspec.json.encode)
    ),
    name=_NAMES,
    ticket=st.one_of(st.none(), st.text("0123456789abcdef.", max_size=80), st.text(max_size=20)),
    span=_RANGES,
    content=st.binary(max_size=64),
    who=st.sampled_from(["vm", "one-vm", "anna", "admin", ""]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_no_upload_does_and_nothing_senseless_is_filed(
    site: Site, body: bytes, name: str, ticket: str | None, span: str | None, content: bytes, who: str
) -> None:
    before = site.fleet.ids()
    headers = {"Authorization": f"Bearer {site.tokens[who]}"} if who else {}
    assert site.client.post("/upload", content=body, headers=headers).status_code in (
        200,
        400,
        401,
        403,
        413,
        429,
    )
    asked = {"archive": "0" * 36, "node": name, "name": name, "size": len(content)}
    minted = site.client.post("/upload", json=asked, headers=headers)
    addresses = [f"/upload/{quote(name, safe='')}"]
    if minted.status_code == 200:
        addresses.append(minted.json()["url"].removeprefix("https://fleet.example"))
    for address in addresses:
        more = headers | ({"Content-Range": span} if span else {})
        given_ticket = {"ticket": ticket} if ticket is not None else None
        put = site.client.put(address, params=given_ticket, content=content, headers=more)
        assert put.status_code in (202, 400, 401, 403, 404, 405, 409, 411, 412, 413, 422, 429)
        assert site.client.head(address, headers=headers).status_code < 500
    assert site.fleet.ids() == before
    assert not [
        path for path in site.fleet.root.parent.rglob("*.tar") if site.fleet.refused not in path.parents
    ]
