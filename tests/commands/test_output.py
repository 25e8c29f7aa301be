"""A table in a pipe looks the same whether rich draws it or not."""

import pytest

from vmsonar.commands import output

TABLES = [
    [("a", "bbbbb", "c"), ("x", "y", "zzz"), ("x1234", "", "")],
    [("only",)],
    [("a", "b"), ("x" * 100, "y" * 98)],
]


@pytest.mark.parametrize("rows", TABLES)
@pytest.mark.parametrize("header", [True, False])
def test_a_plain_table_is_what_rich_would_draw(rows, header, capsys, monkeypatch):
    output.print_table(rows[0], rows[1:], header=header)
    plain = capsys.readouterr().out
    monkeypatch.setattr(output, "plain_table", lambda rows: None)
    output.print_table(rows[0], rows[1:], header=header)
    assert plain == capsys.readouterr().out


@pytest.mark.parametrize(
    "rows", [[], [("x" * 150, "y" * 49)], [("two\nlines", "b")], [("wide 日本", "b")], [("\x1b[31m", "b")]]
)
def test_what_is_not_plain_is_left_to_rich(rows):
    assert output.plain_table(rows) is None
