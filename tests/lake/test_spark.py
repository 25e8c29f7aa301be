"""The rollups on Spark give the rows that DuckDB gives, over the same lake."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vmsonar_archive.parquet.schema import TABLES, columns_of
from vmsonar_inspect.on_spark import SparkTables
from vmsonar_inspect.tables import Tables, open_tables
from vmsonar_inspect.views import VIEWS

from tests.lake.test_rollups import make_history
from tests.lake.test_sources import make_days
from tests.parts import requires
from vmsonar.cli import run

pytestmark = [requires("spark"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkTables, Tables]]:
    folder = tmp_path_factory.mktemp("spark")
    make_history(folder / "in" / "a")
    make_days(folder / "in" / "b")
    assert run(["export", str(folder / "in"), "--to", "parquet", "-o", str(folder / "lake")]) == 0
    with (
        SparkTables([folder / "lake"], session=quick_session()) as spark,
        open_tables([folder / "lake"]) as duck,
    ):
        yield spark, duck
        spark.session.stop()


def quick_session() -> Any:
    """A session for few rows: compiling queries would cost more than running them."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]").appName("vmsonar-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rows(result: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(rounded, row)) for row in result.fetchall()), key=repr)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return 0.0 if value == 0 else round(value, 9 - math.ceil(math.log10(abs(value))))
    return dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


#: Those that people ask; the others are parts of them, and compared by `make chaos`.
ASKED = ("job_usage", "container_usage", "node_usage", "gpu_usage", "user_usage", "coverage", "coverage_gaps")


@pytest.mark.parametrize(
    "name", [name if name in ASKED else pytest.param(name, marks=pytest.mark.chaos) for name in VIEWS]
)
def test_both_engines_agree(engines: tuple[SparkTables, Tables], name: str) -> None:
    spark, duck = engines
    query = f"SELECT * FROM {name}"
    assert rows(spark.sql(query)) == rows(duck.sql(query))


def test_every_field_can_be_selected_unquoted_on_spark(engines: tuple[SparkTables, Tables]) -> None:
    spark, _ = engines
    for table in TABLES:
        names = [field.name for field in columns_of(table)]
        aliased = ", ".join(f"t.{name} AS {name}" for name in names)
        spark.session.sql(f"SELECT {', '.join(names)} FROM (SELECT {aliased} FROM {table} AS t) AS t")


def test_what_is_no_lake_is_refused(tmp_path: Path, engines: tuple[SparkTables, Tables]) -> None:
    make_days(tmp_path / "a")
    with pytest.raises(Exception, match="is not a lake"):
        SparkTables([tmp_path / "a"], session=engines[0].session)
