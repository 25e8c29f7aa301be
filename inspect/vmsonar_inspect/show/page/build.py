"""Puts the page together: one file, a strict content security policy, no request to anywhere."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, tzinfo
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from vmsonar_archive.write.outputs import whole

from vmsonar_inspect.inspection import Inspection
from vmsonar_inspect.show.answers import Summary, fleet_rows, summary_of
from vmsonar_inspect.show.page import fleet, parts
from vmsonar_inspect.show.page.charts import fleet_data, machine_data
from vmsonar_inspect.show.page.parts import Markup, Section, joined, tag

_FIGURES = (
    ("cpu", "CPU: busy cores", True),
    ("memory", "Memory in use", False),
    ("pressure", "Share of time in which some task waited", False),
    ("disk", "Disk", False),
    ("network", "Network", False),
    ("job-cores", "Busy cores per job", True),
    ("job-memory", "Memory per job", True),
    ("container-cores", "Busy cores per container", False),
    ("container-memory", "Memory per container", False),
    ("gpu-busy", "GPU busy", False),
    ("gpu-memory", "GPU memory", False),
    ("gpu-power", "GPU power", True),
    ("fleet-cores", "Busy cores per machine", True),
    ("fleet-memory", "Memory per machine", True),
    ("fleet-gpus", "GPU busy, the least busy machines", True),
)


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
    if found.coverage.first is None:
        return document(found.machine.hostname or archive, parts.masthead(found, zone))
    data = machine_data(inspection, found, _zone(zone))
    body = [parts.masthead(found, zone), parts.tiles(found)]
    sections = [
        ("advice", "Advice", parts.advice(found)),
        *parts.wrong(found, zone),
        ("charts", "Over time", _figures(data["charts"])),
        *parts.lists(found, inspection.users(zone), inspection.programs(zone), zone),
        *parts.events([event for _, event in inspection.events], zone),
        ("energy", "Energy and emissions", parts.energy(found.energy)),
    ]
    body += [*_sections(sections), _footer(found)]
    return document(found.machine.hostname or archive, joined(body), data)


def _sections(sections: Sequence[Section]) -> list[Markup]:
    """The links to the sections, and the sections."""
    links = [tag("a", title, href=f"#{name}") for name, title, _ in sections]
    bodies = [tag("section", tag("h2", title), part, id=name) for name, title, part in sections]
    return [tag("nav", *links), *bodies]


def _fleet_page(inspection: Inspection, zone: tzinfo) -> str:
    rows = fleet_rows(inspection)
    data = fleet_data(inspection, rows, _zone(zone))
    body = [fleet.masthead(rows, zone), fleet.tiles(rows)]
    sections = [
        ("advice", "Advice", fleet.advice(inspection, rows)),
        ("use", "Use of each, worst first", fleet.bars(rows)),
        *([("charts", "Over time", _figures(data["charts"]))] if data else []),
        *fleet.lists(rows, [gap for _, gap in inspection.gaps], zone),
    ]
    return document(f"{len(rows)} machines", joined([*body, *_sections(sections)]), data)


def _zone(zone: tzinfo) -> str:
    return zone.key if isinstance(zone, ZoneInfo) else "UTC" if zone is UTC else str(zone)


def _figures(charts: dict[str, Any]) -> Markup:
    figures = []
    for name, title, wide in _FIGURES:
        if name in charts:
            label = f"{title} over time; plus and minus zoom, arrows move, 0 shows all"
            canvas = tag("canvas", tabindex="0", role="img", aria_label=label)
            head = tag("figcaption", tag("h3", title))
            figures.append(tag("figure", head, canvas, data_chart=name, class_="wide" if wide else None))
    note = "Drag over a chart to zoom, double-click for all of it. "
    note += "Grey: no samples. Dashed: what there is. Red: what went wrong."
    return joined([tag("p", note, class_="soft small"), _ZOOM, tag("div", *figures, class_="charts")])


_ZOOM = tag(
    "div",
    tag("span", "all of it", id="range", class_="soft small"),
    tag("button", "◀", id="zoom-left", type="button", aria_label="earlier"),
    tag("button", "▶", id="zoom-right", type="button", aria_label="later"),
    tag("button", "\u2212", id="zoom-out", type="button", aria_label="zoom out"),
    tag("button", "+", id="zoom-in", type="button", aria_label="zoom in"),
    tag("button", "all", id="zoom-all", type="button"),
    class_="zoom",
)


def _footer(found: Summary) -> Markup:
    version = found.machine.vmsonar_version
    by = f" by vmsonar {version}" if version else ""
    what = f"Archive {found.machine.archive}, recorded{by}"
    return tag("footer", f"{what}. ~ marks an estimate, ≥ a lower bound.")


def document(title: str, body: str, data: dict[str, Any] | None = None) -> str:
    style, policy, end = _asset("page.css"), "default-src 'none'", ""
    policy += f"; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    if data is not None:
        script = _asset("page.js")
        policy += f"; script-src '{_hash(script)}'"
        # A data block ends at the first </script, whatever the JSON says.
        safe = msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
        end = f'<script type="application/json" id="data">{safe}</script><script>{script}</script>'
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="referrer" content="no-referrer">'),
            Markup('<link rel="icon" href="data:,">'),
            tag("title", f"{title}: vmsonar"),
            Markup(f"<style>{style}</style>"),
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
{head}
</head>
<body>
<main>
{body}
</main>
{end}
</body>
</html>
"""


def _asset(name: str) -> str:
    return resources.files("vmsonar_inspect").joinpath("show", "page", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
