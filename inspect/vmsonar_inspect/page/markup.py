"""HTML in which everything that comes from an archive is text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from vmsonar_inspect.render.columns import Column
from vmsonar_inspect.text import plain
from vmsonar_inspect.units import UNKNOWN


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | None) -> Markup:
    """An element; children that are not Markup are escaped, and so is every attribute."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(plain(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(text(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def text(content: str) -> Markup:
    """Text made harmless."""
    return content if isinstance(content, Markup) else Markup(escape(plain(content)))


def joined(parts: Iterable[str]) -> Markup:
    return Markup("\n".join(text(part) for part in parts))


def table(columns: Sequence[Column], rows: Sequence[Any]) -> Markup:
    """A table of the columns that have something to say."""
    cells = [[column.write(row) for column in columns] for row in rows]
    places = [place for place, column in enumerate(columns) if _says(column, [row[place] for row in cells])]
    head = [tag("th", columns[place].title, class_=_align(columns[place]), scope="col") for place in places]
    body = [tag("tr", *(_cell(columns[place], row[place]) for place in places)) for row in cells]
    inner = tag("thead", tag("tr", *head)) + tag("tbody", joined(body))
    return tag("div", tag("table", Markup(inner)), class_="scroll", tabindex="0")


def _says(column: Column, cells: Sequence[str]) -> bool:
    """Whether a column has anything to say."""
    return any(cell and not (column.optional and cell == UNKNOWN) for cell in cells)


def _cell(column: Column, content: str) -> Markup:
    long = not column.right and len(content) > 40
    return tag("td", content, class_="long" if long else _align(column))


def _align(column: Column) -> str | None:
    return "right" if column.right else None
