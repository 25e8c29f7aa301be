"""Dashboards for Grafana, as its JSON, from dashboards.tsv: panels name fields, metrics.tsv gives metrics and units."""

import re
from importlib.resources import files
from string import ascii_uppercase
from typing import Any

from vmsonar_archive.dialect.metrics import Metric, info_name, table
from vmsonar_archive.dialect.subjects import LIVES

_SCHEMA_VERSION = 39
_WIDTH, _HEIGHT = 12, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: What `kind.field` and `kind.info` in a query are replaced by.
_FIELD = re.compile(r"<(\w+)\.(\w+)([^>]*)>")
#: Grafana's units for ours, of a value and of its rate.
_UNITS = {
    "bytes": ("bytes", "Bps"),
    "seconds": ("s", "none"),
    "joules": ("joule", "watt"),
    "watts": ("watt", "watt"),
    "celsius": ("celsius", "celsius"),
    "ratio": ("percentunit", "percentunit"),
    "hertz": ("hertz", "hertz"),
    "bytes_per_second": ("Bps", "Bps"),
    "": ("short", "cps"),
}
_TITLES = {
    "node": "vmsonar: node",
    "jobs": "vmsonar: jobs",
    "containers": "vmsonar: containers",
    "gpus": "vmsonar: GPUs",
    "fleet": "vmsonar: fleet",
}


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file."""
    text = files(__package__).joinpath("dashboards.tsv").read_text(encoding="utf-8")
    panels: dict[str, list[list[str]]] = {name: [] for name in _TITLES}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, *told = line.split("\t")
            panels[name].append(told)
    return {f"vmsonar-{name}.json": _dashboard(name, title, panels[name]) for name, title in _TITLES.items()}


def promql(query: str) -> str:
    """A panel's query in PromQL: names for fields, the chosen machines, and the interval of rates."""
    named = _FIELD.sub(lambda match: _selected(*match.groups()), query)
    return re.sub(r"\b(rate|increase)\(([^()]*)\)", r"\1(\2[$__rate_interval])", named)


def _selected(kind: str, field: str, more: str) -> str:
    metric = None if field == "info" else _metric(kind, field)
    name = metric.name if metric is not None else info_name(kind)
    selected = f'{name}{{instance=~"$instance"{more}}}'
    if kind not in LIVES or (metric is not None and metric.is_counter):
        return selected
    # Imported series end without a mark, and Prometheus shows them for five minutes more: what lives has a number of
    # the time of the machine's newest sample. (The oldest of these, where machines of many sites have one name.)
    machine, newest = "(instance, job, archive)", _metric("view", "sample_time").name
    since = f"on {machine} group_left () min by {machine} (timestamp({newest}))"
    return f"({selected} and timestamp({selected}) >= {since})"


def _metric(kind: str, field: str) -> Metric:
    return next(one for one in table().metrics if (one.source, one.field) == (kind, field))


def _dashboard(name: str, title: str, panels: list[list[str]]) -> dict[str, Any]:
    return {
        "uid": f"vmsonar-{name}",
        "title": title,
        "description": "Made by vmsonar from its table of metrics; live scrapes and imported history alike.",
        "tags": ["vmsonar"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "refresh": "",
        "templating": {"list": _variables()},
        "panels": [_drawn(number, *panel) for number, panel in enumerate(panels)],
    }


def _variables() -> list[dict[str, Any]]:
    query = f"label_values({info_name('sysinfo')}, instance)"
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Machine",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "instance"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        },
    ]


def _drawn(number: int, title: str, unit: str, form: str, *queries: str) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if form == "stacked" else {}
    defaults = {"unit": _unit(queries[0]) if unit == "-" else unit, "custom": custom}
    told = {"format": "table", "instant": True} if form == "table" else {"range": True}
    pairs = zip(queries[::2], queries[1::2], strict=True)
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries" if form == "stacked" else form,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {},
        "targets": [
            {"refId": letter, "datasource": _SOURCE, "expr": promql(query), "legendFormat": legend, **told}
            for letter, (query, legend) in zip(ascii_uppercase, pairs, strict=False)
        ],
    }


def _unit(query: str) -> str:
    """That of the first field, or of its rate."""
    match = _FIELD.search(query)
    assert match is not None
    return _UNITS[_metric(match[1], match[2]).unit]["rate(" in query]
