import os
import pwd
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import UsageError

from vmsonar.config.file import load_config, parse_config, read_config
from vmsonar.config.quantities import parse_duration, parse_size, show_duration, show_size, write_size
from vmsonar.config.reference import reference
from vmsonar.config.schema import Config, UidRange, plain
from vmsonar.host import roots

DOCS = Path(__file__).parents[2] / "docs"


def test_nothing_is_required():
    assert parse_config("", "f") == Config()
    assert parse_config("# only a comment\n", "f") == Config()
    assert parse_config("filters: {}\n", "f") == Config()


def test_every_kind_of_value():
    config = parse_config(
        "interval: 500ms\nbudget: {max_bytes: 2GiB, min_free: 1000, max_days: 30}\n"
        "filters:\n  uids: {keep: [0, 1000-1999]}\n  users: {leave_out: [NO, 'on']}\n"
        "collectors: {gpu: none}\n",
        "f",
    )
    assert config.interval == 0.5
    assert config.budget.max_bytes == 2 * 2**30
    assert config.budget.min_free == 1000
    assert config.filters.uids.keep == [UidRange(0, 0), UidRange(1000, 1999)]
    assert config.filters.users.leave_out == ["NO", "on"]
    assert config.collectors.gpu == "none"


@pytest.mark.parametrize("word", ["12:30", "NO", "yes", "0o17", "2026-11-16", "1_000"])
def test_words_that_yaml_1_1_takes_for_something_else(word):
    assert parse_config(f"archive: {word}", "f").archive == word


def test_the_plain_form_reads_back_as_the_same():
    import yaml

    config = parse_config("interval: 250ms\nfilters: {uids: {keep: [5-7]}}\nbudget: {max_bytes: 7MB}", "f")
    assert parse_config(yaml.safe_dump(plain(config)), "f") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall: 10s", "f: intervall: unknown key; did you mean interval?"),
        ("collectors: {gpus: auto}", "f: collectors.gpus: unknown key; did you mean gpu?"),
        ("collectors: {gpu: maybe}", "f: collectors.gpu: 'maybe' is not one of auto, none"),
        ("collectors: {gpu: true}", "f: collectors.gpu: expected text, got true or false"),
        ("collectors: {gpu: off}", "f: collectors.gpu: 'off' is not one of auto, none"),
        ("collectors: []", "f: collectors: expected a section, got a list"),
        ("interval: 10", "f: interval: expected a duration such as 10s, got 10"),
        ("interval: ten", "f: interval: 'ten' is not a duration such as 500ms, 10s, 5min, 2h or 30d"),
        ("interval: 1ms", "f: interval: 1ms is not between 10ms and 1d"),
        ("interval:", "f: interval: expected a duration such as 10s, got None"),
        ("archive: [a]", "f: archive: expected text or null, got a list"),
        ("budget: {max_days: 0}", "f: budget.max_days: expected a whole number >= 1"),
        ("budget: {max_days: '7'}", "f: budget.max_days: expected a whole number or null, got text"),
        ("budget: {max_bytes: 2 GiBs}", "f: budget.max_bytes: '2 GiBs' is not a size such as 512MiB"),
        ("filters: {uids: {keep: [9-3]}}", "f: filters.uids.keep[0]: '9-3' is not a user id or a range"),
        ("filters: {users: {keep: [1]}}", "f: filters.users.keep[0]: expected text, got a whole number"),
        ("gpu: {vendors: [foo]}", "f: gpu.vendors[0]: 'foo' is not one of amd, intel, nvidia"),
        ("forward: {tls: {use: maybe}}", "f: forward.tls.use: 'maybe' is not one of auto, none"),
        ("nothing: alike", "f: nothing: unknown key"),
        ("interval: 1s\ninterval: 2s", "f: line 2: key 'interval' stands twice"),
        ("filters:\n  users: {keep: [a], keep: [b]}", "f: line 2: key 'keep' stands twice"),
        ("1: 2", "f: line 1: a key must be a word"),
        ("- a", "f: expected a section, got a list: a configuration has a line `key: value`"),
        ("interval: [1", "f: line 1: expected ',' or ']'"),
        ("!!python/object/apply:os.system [true]", "f: line 1: could not determine a constructor"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_config(text, "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot read the configuration: No such file"):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        read_config(tmp_path / "binary")
    (tmp_path / "big").write_bytes(b"#" * (2 << 20))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_config(tmp_path / "big")


def test_which_file_counts(tmp_path, monkeypatch):
    mine, theirs = tmp_path / "mine.yaml", tmp_path / "theirs.yaml"
    mine.write_text("interval: 1s")
    theirs.write_text("interval: 2s")
    assert load_config(mine, {"VMSONAR_CONFIG": str(theirs)}).interval == 1
    assert load_config(None, {"VMSONAR_CONFIG": str(theirs)}).interval == 2
    monkeypatch.setattr(roots, "DEFAULT_CONFIG", tmp_path / "absent")
    assert load_config(None, {}) == Config()


def test_which_archive_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(roots, "SYSTEM_ARCHIVE", tmp_path / "system")
    monkeypatch.setattr(roots.os, "geteuid", lambda: 1000)
    environment = {"HOME": "/home/ada", "VMSONAR_ARCHIVE": "/env"}
    assert roots.archive_to_write(Path("/given"), "/file", environment) == Path("/given")
    assert roots.archive_to_write(None, "/file", environment) == Path("/env")
    del environment["VMSONAR_ARCHIVE"]
    assert roots.archive_to_write(None, "/file", environment) == Path("/file")
    assert roots.archive_to_write(None, None, environment) == Path("/home/ada/.local/state/vmsonar")
    assert roots.archive_to_read(None, None, environment) == tmp_path / "system"
    for empty in ({}, {"HOME": ""}):
        assert roots.user_archive(empty) == Path(pwd.getpwuid(os.getuid()).pw_dir, ".local/state/vmsonar")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # a user id without a name
    assert roots.archive_to_read(None, None, {}) == tmp_path / "system"
    with pytest.raises(FileNotFoundError, match="set HOME or XDG_STATE_HOME"):
        roots.archive_to_write(None, None, {})
    environment["XDG_STATE_HOME"] = str(tmp_path)
    assert roots.archive_to_write(None, None, environment) == tmp_path / "vmsonar"
    (tmp_path / "vmsonar").mkdir()
    (tmp_path / "vmsonar" / "archive.json").touch()
    assert roots.archive_to_read(None, None, environment) == tmp_path / "vmsonar"
    monkeypatch.setattr(roots.os, "geteuid", lambda: 0)
    assert roots.archive_to_write(None, None, environment) == tmp_path / "system"


def test_the_page_is_up_to_date():
    assert (DOCS / "configuration.md").read_text() == reference(), "run: make docs"


def test_the_example_in_the_page_is_valid():
    example = reference().split("```yaml\n")[1].split("```")[0]
    assert parse_config(example, "example").interval == 5


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("1.5s", 1.5), ("5min", 300), ("5m", 300), ("2h", 7200), ("1d", 86400)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds
    assert parse_duration(show_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1", "1w", "1 0s"])
def test_no_durations(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_sizes():
    assert [parse_size(text) for text in ("7", "1kB", "1KiB", "1.5GiB")] == [7, 1000, 1024, 3 * 2**29]
    assert [write_size(size) for size in (7, 2048, 3 * 2**29)] == ["7B", "2KiB", "1536MiB"]
    assert [show_size(size) for size in (7, 2048, 3 * 2**29, 2**50)] == [
        "7 B",
        "2.0 KiB",
        "1.5 GiB",
        "1024.0 TiB",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budget: {max_days: 1000000}", "budget.max_days: expected a whole number <= 36500"),
        (f"budget: {{max_days: {'9' * 5000}}}", "line 1: '9999999"),
        (f"budget: {{max_bytes: {'9' * 400}GiB}}", "budget.max_bytes: 9999999"),
        ("budget: {min_free: 99999999999TiB}", "budget.min_free: 99999999999TiB is more than 1024 PiB"),
        ("budget: {max_bytes: -5}", "budget.max_bytes: '-5' is not a size"),
        ("budget: {max_bytes: .nan}", "budget.max_bytes: '.nan' is not a size"),
        ("budget: {max_days: 1e400}", "budget.max_days: expected a whole number or null, got a number"),
        (f"interval: {'9' * 400}s", "interval: 9999999"),
        (f"forward: {{timeout: {'9' * 20}d}}", "forward.timeout: 99999999999999999999d is longer than ten years"),
        ("filters: " + "[" * 5000 + "]" * 5000, "line 1: nested deeper than 20 levels"),
        ("a: " + "{a: " * 3000 + "1" + "}" * 3000, "line 1: nested deeper than 20 levels"),
        (f"filters: {{users: {{keep: [{','.join('x' * 1500)}]}}}}", "filters.users.keep: expected a list of length"),
        (f"filters: {{uids: {{keep: ['{'9' * 5000}']}}}}", "filters.uids.keep[0]: '9999999"),
        ('archive: "a\\0b"', "line 1: a character that no name or path can have"),
        ('archive: "a\\ud800b"', "line 1: a character that no name or path can have"),
        ("a: &a [*a]", "line 1: an alias stands for what it is a part of"),
        (
            "a: &a [" + ",".join("x" * 10) + "]\n"
            + "".join(f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}" if n else "*a"] * 10) + "]\n" for n in range(9)),
            "line 5: more than 20000 values",
        ),
        ("archive: !!timestamp 99999-99-99", "line 1: '99999-99-99' is not what its form or tag says"),
        ("budget: {max_days: !!int ''}", "line 1: '' is not what its form or tag says"),
    ],
)  # fmt: skip
def test_values_that_would_break_what_uses_them(text, message):
    with pytest.raises(UsageError) as refused:
        parse_config(text, "here")
    assert str(refused.value).startswith(f"here: {message}")
    assert len(str(refused.value)) < 200


def test_an_alias_is_still_an_alias():
    config = parse_config("filters: {users: &who {keep: [alice]}, commands: *who}", "here")
    assert config.filters.commands.keep == ["alice"]


@pytest.mark.parametrize(
    "value", ["!!map foo", "!!set foo", '"\\U00110000"', "!!omap foo", "!!timestamp x", "!!int y"]
)
def test_tags_and_escapes_that_say_something_else_are_refused_in_one_line(value: str) -> None:
    with pytest.raises(UsageError, match=r"^here: .+"):
        parse_config(f"archive: {value}\n", "here")
