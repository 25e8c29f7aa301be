"""The mark `requires`: a missing part is named, and is a failure when it was demanded."""

import re
from pathlib import Path

import pytest

from tests import parts

pytest_plugins = ["pytester"]

CASE = """
import pytest
from tests.parts import requires

@requires("gcc", "{part}")
def test_it():
    {text}
"""


@pytest.fixture
def run_case(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs a test that requires `part` in a pytest of its own, where the part `kcat` is always missing."""
    monkeypatch.setitem(parts.PROBES, "kcat", lambda: "no kcat on the PATH")
    monkeypatch.setitem(parts.PROBES, "gcc", lambda: None)
    parts.missing.cache_clear()

    def run(part: str, demand: str, text: str = "pass") -> pytest.RunResult:
        monkeypatch.setenv("VMSONAR_REQUIRE", demand)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they are slow to import
        pytester.makepyfile(CASE.format(part=part, text=text))
        return pytester.runpytest_inprocess("-p", "tests.parts", "-ra", "--strict-markers")

    yield run
    parts.missing.cache_clear()


def test_a_missing_part_skips_and_is_named(run_case) -> None:
    result = run_case("kcat", "")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*real part 'kcat' is missing: no kcat on the PATH*"])


@pytest.mark.parametrize("demand", ["all", "kcat", "docker, kcat"])
def test_a_missing_part_that_was_demanded_fails(run_case, demand: str) -> None:
    result = run_case("kcat", demand)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*real part 'kcat' is missing: no kcat on the PATH*"])


def test_a_missing_part_that_another_list_demands_skips(run_case) -> None:
    run_case("kcat", "docker,gcc").assert_outcomes(skipped=1)


@pytest.mark.parametrize(("demand", "outcome"), [("all", "failed"), ("gcc", "skipped")])
def test_where_all_is_demanded_nothing_is_skipped(run_case, demand: str, outcome: str) -> None:
    result = run_case("gcc", demand, "pytest.skip('one core')")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*one core*"])


def test_a_part_that_is_there_runs(run_case) -> None:
    run_case("gcc", "all").assert_outcomes(passed=1)


def test_an_unknown_demand_is_refused(run_case) -> None:
    result = run_case("gcc", "kafak")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*VMSONAR_REQUIRE names no real part: kafak*"])


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no such real part: dokcer"):
        parts.requires("docker", "dokcer")


@pytest.mark.parametrize("part", sorted(parts.PROBES))
def test_each_probe_answers_with_one_short_reason_or_none(part: str) -> None:
    reason = parts.missing(part)
    assert reason is None or re.fullmatch(rf"real part '{part}' is missing: .+", reason, re.DOTALL)


def test_an_empty_path_has_no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parts, "_search_path", lambda: str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for part in ("atop", "gcc", "java", "jq", "kafka", "kcat", "pcp", "podman", "tmux", "zstd"):
        assert parts.PROBES[part]() is not None, part


def test_the_installer_and_the_probes_agree_on_the_cache() -> None:
    script = (Path(__file__).parent.parent / ".ci" / "parts").read_text()
    assert "cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmsonar-tests\n" in script


def test_each_part_is_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "development.md").read_text()
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    assert [part for part in parts.PROBES if f"`{part}`" not in rows] == []
