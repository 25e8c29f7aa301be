"""What programs read stays: no field of an answer is ever removed or retyped, each has its unit and is documented."""

import os
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from vmsonar_archive.records.fields import fields_of
from vmsonar_inspect.facts.model import Story, StoryMoment, Use
from vmsonar_inspect.show.answers import ROW_TYPES, Document, FleetRow, Summary, flat_names

EXPECTED = Path(__file__).parent / "expected" / "answers.txt"


def structs(kind: type, found: dict[str, type]) -> dict[str, type]:
    """A kind and all kinds that it holds."""
    if kind.__name__ not in found:
        found[kind.__name__] = kind
        for hint in get_type_hints(kind).values():
            for inner in (hint, *getattr(hint, "__args__", ())):
                if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                    structs(inner, found)
    return found


def every() -> dict[str, type]:
    found: dict[str, type] = {}
    for kind in (Document, Summary, FleetRow, Story, *ROW_TYPES.values()):
        structs(kind, found)
    return found


def written(annotation: Any) -> str:
    name = (
        annotation.__name__
        if isinstance(annotation, type) and not hasattr(annotation, "__args__")
        else str(annotation)
    )
    return re.sub(r"\b(?:[a-z_]+\.)+", "", name)


def fields() -> list[str]:
    """Every field with its type, and every column of CSV."""
    lines = [
        f"json {name}.{field}: {written(get_type_hints(kind)[field])}"
        for name, kind in every().items()
        for field in kind.__struct_fields__
    ]
    views = {**ROW_TYPES, "--job": StoryMoment}
    lines += [f"csv {view}: {column}" for view, kind in views.items() for column in flat_names(kind)]
    return sorted(lines)


def test_no_field_is_removed_or_retyped() -> None:
    if os.environ.get("VMSONAR_EXPECT") == "write":
        EXPECTED.write_text("\n".join(fields()) + "\n")
    gone = set(EXPECTED.read_text().splitlines()) - set(fields())
    assert not gone, "programs rely on these; fields may only be added"


def test_what_is_new_is_written_down() -> None:
    assert set(fields()) <= set(EXPECTED.read_text().splitlines()), "VMSONAR_EXPECT=write adds it"


def test_every_figure_has_its_unit() -> None:
    bare = [
        f"{name}.{field.name}"
        for name, kind in every().items()
        for field in fields_of(kind)
        if field.type in (int, float, Use) and "unit" not in field.extras and kind not in (Use, Document)
    ]
    assert not bare, "declare the unit on the model"


def test_the_order_of_columns_is_that_of_the_fields() -> None:
    assert flat_names(ROW_TYPES["jobs"])[:3] == ["job", "series_id", "archive"]
    assert [name for name in flat_names(ROW_TYPES["jobs"]) if name.startswith("cores_")] == [
        "cores_mean",
        "cores_median",
        "cores_p95",
        "cores_peak",
    ]
