"""What programs read stays: no field of an answer is ever removed or retyped, and each is documented."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmsonar_inspect.answers import ROW_TYPES, Document, FleetRow, Summary, flat_names
from vmsonar_inspect.stories import Story, StoryMoment

EXPECTED = Path(__file__).parent / "expected" / "answers.txt"
PAGE = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text()


def structs(kind: type, found: dict[str, type]) -> dict[str, type]:
    """A kind and all kinds that it holds."""
    if kind.__name__ not in found:
        found[kind.__name__] = kind
        for field in msgspec.structs.fields(kind):
            for inner in (field.type, *getattr(field.type, "__args__", ())):
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
        f"json {name}.{field.name}: {written(field.type)}"
        for name, kind in every().items()
        for field in msgspec.structs.fields(kind)
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


@pytest.mark.parametrize("kind", every().values(), ids=lambda kind: kind.__name__)
def test_every_field_is_documented(kind: type) -> None:
    missing = [name for name in kind.__struct_fields__ if f"`{name}`" not in PAGE]
    assert not missing, f"docs/inspect.md does not explain these of {kind.__name__}"


def test_the_order_of_columns_is_that_of_the_fields() -> None:
    assert flat_names(ROW_TYPES["jobs"])[:3] == ["job", "series_id", "archive"]
    assert [name for name in flat_names(ROW_TYPES["jobs"]) if name.startswith("cores_")] == [
        "cores_mean",
        "cores_median",
        "cores_p95",
        "cores_peak",
    ]
