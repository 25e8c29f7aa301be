"""Metrics as text: OpenMetrics 1.0, and the classic format of Prometheus that node_exporter's textfiles have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from vmsonar_archive.dialect.metrics import Labels

#: What to say in a Content-Type.
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CLASSIC_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"', "\0": "\ufffd"})
_ESCAPED_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})


@dataclass(slots=True)
class Family:
    """All samples of one name. A counter's name ends in `_total`, that of an info in `_info`."""

    name: str
    type: Literal["counter", "gauge", "info"]
    help: str
    #: The base unit, which the name ends in (before `_total`), or nothing.
    unit: str = ""
    #: Labels as `label_text` writes them, and the value.
    samples: list[tuple[str, float]] = field(default_factory=list)

    def add(self, value: float | None, labels: Labels = ()) -> None:
        """Adds a sample; None, which is not known, is none."""
        if value is not None:
            self.samples.append((label_text(labels), value))


def label_text(labels: Labels) -> str:
    """The labels as they stand in braces; whatever the values hold, they end no line and no quote."""
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels)


def number_text(value: float) -> str:
    """A number so that reading it gives the same number."""
    return str(int(value)) if isinstance(value, bool) else repr(value)


def classic(families: Iterable[Family]) -> bytes:
    """The format that every Prometheus reads, without timestamps."""
    return _joined(line for family in families for line in _family(family, is_open=False))


def openmetrics(families: Iterable[Family]) -> bytes:
    """OpenMetrics, ended by its `# EOF`."""
    return _joined(line for family in families for line in _family(family, is_open=True)) + b"# EOF\n"


def _joined(lines: Iterable[str]) -> bytes:
    # A half of a surrogate pair can be in foreign JSON, but not in UTF-8.
    return "".join(lines).encode("utf-8", "replace")


def _family(family: Family, *, is_open: bool) -> Iterator[str]:
    if not family.samples:
        return
    yield head(family, is_open=is_open)
    name = family.name
    for labels, value in family.samples:
        yield f"{name}{{{labels}}} {number_text(value)}\n" if labels else f"{name} {number_text(value)}\n"


def head(family: Family, *, is_open: bool = True) -> str:
    """The lines before a family's samples: OpenMetrics names it without its suffix."""
    if not is_open:
        kind = "gauge" if family.type == "info" else family.type
        told = family.help.translate(_ESCAPED_HELP)
        return f"# HELP {family.name} {told}\n# TYPE {family.name} {kind}\n"
    bare = family.name
    if family.type != "gauge":
        bare = bare.removesuffix("_total" if family.type == "counter" else "_info")
    lines = f"# TYPE {bare} {family.type}\n"
    if family.unit and bare.endswith(f"_{family.unit}"):
        lines += f"# UNIT {bare} {family.unit}\n"
    return f"{lines}# HELP {bare} {family.help.translate(_ESCAPED)}\n"
