"""Puts the page together: one file, a strict content security policy, no request to anywhere."""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from datetime import tzinfo
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from vmsonar_archive.write.outputs import whole

from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import Summary, fleet_rows, summary_of
from vmsonar_inspect.show.page import fleet, parts
from vmsonar_inspect.show.page.charts import machine_data
from vmsonar_inspect.show.page.details import job_details
from vmsonar_inspect.show.page.parts import CHARTS, Markup, Section, joined, table_place, tag
from vmsonar_inspect.show.page.tables import MOST_ROWS, machine_tables
from vmsonar_inspect.show.terminal.screen import busy_sentence

#: In the order in which they build on each other.
_SCRIPTS = ("format.js", "charts.js", "tables.js", "page.js")


def write_page(inspection: Inspection, path: Path, zone: tzinfo) -> int:
    """Writes the page whole or not at all; returns its size."""
    many = len(inspection.sources) > 1
    content = (_fleet_page(inspection, zone) if many else _page(inspection, zone)).encode()
    with whole(path) as sink:
        sink.write(content)
    return len(content)


def _page(inspection: Inspection, zone: tzinfo) -> str:
    (archive,) = inspection.sources
    found = summary_of(inspection, archive)
    head = [parts.masthead(found, zone), parts.filtered(inspection.settings)]
    title = found.machine.hostname or archive
    if found.coverage.first is None:
        return document(title, head, [], {"tables": {}})
    tables = machine_tables(inspection, found, zone)
    sections = [
        ("advice", "Advice", joined([tag("p", busy_sentence(found).plain), parts.advice(found)])),
        *([("wrong", "What went wrong", table_place("wrong"))] if "wrong" in tables else []),
        ("charts", "Over time", CHARTS),
        ("use", "Use", parts.tiles(found)),
        *((name, each["title"], table_place(name)) for name, each in tables.items() if name != "wrong"),
        ("energy", "Energy", parts.energy(found.energy)),
    ]
    details = job_details(inspection, found.jobs[:MOST_ROWS], found.advice)
    data = machine_data(inspection, found, zone)
    data |= {"tables": tables, "kind": "job", "of": "jobs", "details": details}
    return document(title, head, sections, data, _footer(found))


def _fleet_page(inspection: Inspection, zone: tzinfo) -> str:
    rows = fleet_rows(inspection)
    head = [fleet.masthead(rows, zone), parts.filtered(inspection.settings)]
    return document(fleet.title(rows), head, *fleet.fleet_page(inspection, rows, zone))


def _footer(found: Summary) -> Markup:
    version = found.machine.vmsonar_version
    by = f" by vmsonar {version}" if version else ""
    what = f"Archive {found.machine.archive}, recorded{by}"
    return tag("footer", f"{what}. ~ marks an estimate, ≥ a lower bound.")


#: Where a page that a server sends has its style and its script; its policy is a header.
STYLE, SCRIPT = "/assets/page.css", "/assets/page.js"


def style() -> str:
    return _asset("page.css")


def script(*more: str) -> str:
    """The page's own script, with further files of it."""
    return '"use strict";\n{\n' + "\n".join(map(_asset, (*_SCRIPTS, *more))) + "}\n"


def _alone() -> dict[str, str]:
    """What makes a page one file: style and script within it, and a policy that allows these two."""
    look, work = style(), script()
    policy = (
        f"default-src 'none'; style-src '{_hash(look)}'; script-src '{_hash(work)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{look}</style>",
        "script": f"<script>{work}</script>",
    }


_SERVED = {
    "policy": "",
    "style": f'<link rel="stylesheet" href="{STYLE}">',
    "script": f'<script src="{SCRIPT}" defer></script>',
}


def document(
    title: str,
    head: Sequence[str],
    sections: Sequence[Section],
    data: dict[str, Any],
    foot: str = "",
    served: bool = False,
) -> str:
    """The page of page.html: in the place of all sections the script shows one job or machine."""
    bodies = [
        tag("section", tag("h2", title, id=f"{name}-title"), part, id=name, aria_labelledby=f"{name}-title")
        for name, title, part in sections
    ]
    return Template(_asset("page.html")).substitute(
        **(_SERVED if served else _alone()),
        title=parts.text(title),
        head=joined(head),
        links=joined(tag("a", title, href=f"#{name}") for name, title, _ in sections),
        sections=joined(bodies),
        foot=foot,
        # A fifth of its size, and nothing in it can end the block.
        data=base64.b64encode(zlib.compress(msgspec.json.encode(data))).decode(),
    )


def _asset(name: str) -> str:
    return resources.files("vmsonar_inspect").joinpath("show", "page", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
