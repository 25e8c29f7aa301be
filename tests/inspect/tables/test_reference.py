"""The generated page is the one that is checked in."""

from pathlib import Path

from vmsonar_inspect.tables.catalog import page


def test_the_page_of_tables_is_fresh() -> None:
    path = Path(__file__).parents[3] / "docs" / "tables.md"
    assert path.read_text() == page(), "run: make docs"
