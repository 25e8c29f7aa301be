"""The natural mistakes: each is one line that says what to do, with the exit code that the docs give."""

import os
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import VmsonarError, cannot_open

from vmsonar import cli
from vmsonar.commands import install
from vmsonar.config.schema import Collectors, Config
from vmsonar.daemon.once import append_one

FEW = Config(collectors=Collectors(process="none", gpu="none", container="none", energy="none"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    root = tmp_path_factory.mktemp("mistakes") / "archive"
    append_one(FEW, root)
    return root


@pytest.fixture
def elsewhere(archive, tmp_path, monkeypatch):
    """A machine whose configuration names another archive than the usual one."""
    config = tmp_path / "config.yaml"
    config.write_text(f"archive: {archive}\n")
    monkeypatch.setenv("VMSONAR_CONFIG", str(config))
    monkeypatch.delenv("VMSONAR_ARCHIVE", raising=False)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.chdir(tmp_path)
    return archive


def refused(capsys, *line):
    """The exit code and the only line that it says."""
    code = cli.run([str(part) for part in line])
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return code, told


def test_sql_is_named_to_who_takes_it_for_a_view(archive, capsys):
    told = 'vmsonar: sql is a command of its own: vmsonar sql PATH… "SELECT …"\n'
    assert refused(capsys, "inspect", archive, "sql", "select 1") == (2, told)


def test_every_command_finds_the_archive_that_the_configuration_names(elsewhere, tmp_path, capsys):
    assert cli.run(["bundle", "-o", "b.tar"]) == 0
    assert cli.run(["verify", "b.tar"]) == 0
    assert cli.run(["inspect", "gaps", "--json"]) == 0
    assert cli.run(["derive"]) == 0
    assert capsys.readouterr().out.endswith("every finished day has its tables\n")
    other = tmp_path / "other.yaml"
    other.write_text("archive: /nowhere\n")
    assert refused(capsys, "bundle", "--config", other) == (3, "vmsonar: /nowhere does not exist\n")


@pytest.mark.parametrize(
    "line",
    [
        "verify ARCHIVE",
        "verify BUNDLE --allowed-signers FILE --identity x",
        "recover ARCHIVE -o new",
        "bundle --archive ARCHIVE",
        "bundle --archive ARCHIVE --sign FILE",
        "bundle --archive ARCHIVE --redact user --redact-key FILE",
        "status --archive ARCHIVE",
        "status --config FILE",
        "inspect ARCHIVE --rules FILE",
        "inspect ARCHIVE --factors FILE",
        "inspect ARCHIVE --programs FILE",
        "derive --archive ARCHIVE",
        "sample --archive ARCHIVE",
    ],
)
def test_what_may_not_be_read_is_not_a_usage_error(archive, tmp_path, monkeypatch, capsys, line):
    """typer asks access(2) before we see the path, and would answer with exit code 2."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    places = {"ARCHIVE": str(archive), "BUNDLE": str(tmp_path / "file"), "FILE": str(tmp_path / "file")}
    cli.run([places.get(word, word) for word in line.split()])
    assert "not readable" not in capsys.readouterr().err


def test_no_permission_says_who_may():
    told = cannot_open("/x", PermissionError(13, "Permission denied"))
    assert isinstance(told, VmsonarError)
    assert str(told) == "cannot open /x: Permission denied: ask as root, as its owner, or in its group"
    assert str(cannot_open("/x", OSError(5, "Input/output error"))) == "cannot open /x: Input/output error"


def test_a_bundle_where_an_archive_is_wanted(archive, tmp_path, capsys):
    bundle = tmp_path / "b.tar"
    assert cli.run(["bundle", "--archive", str(archive), "-o", str(bundle)]) == 0
    code, told = refused(capsys, "status", "--archive", bundle)
    assert (code, "not the folder of an archive" in told) == (3, True)
    code, told = refused(capsys, "derive", "--archive", bundle)
    assert (code, "vmsonar export takes bundles" in told) == (2, True)


def test_a_file_that_is_no_bundle(tmp_path, capsys):
    (tmp_path / "x").write_text("hello")
    assert cli.run(["verify", str(tmp_path / "x")]) == 1
    told = capsys.readouterr().out
    assert "is not a bundle" in told
    assert "journal head" not in told


def test_other_schemes_are_not_taken_for_files(archive, capsys):
    code, told = refused(capsys, "bundle", "--archive", archive, "-o", "ftp://host/x")
    assert (code, told) == (2, "vmsonar: a bundle is sent by https:// or s3:// only\n")


@pytest.mark.parametrize("option", ["--rules", "--factors", "--programs"])
def test_a_file_of_the_site_that_is_not_there(archive, capsys, option):
    code, told = refused(capsys, "inspect", archive, option, "/nowhere")
    assert (code, told.endswith("/nowhere: No such file or directory\n")) == (2, True)
    assert "Errno" not in told


def test_uninstall_is_for_root(monkeypatch, capsys):
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    assert refused(capsys, "uninstall") == (
        3,
        "vmsonar: the units belong to root: run vmsonar uninstall as root\n",
    )


@pytest.mark.parametrize(
    "line",
    [("sql", "ARCHIVE", "SELECT 1 AS one", "-o"), ("sql", "ARCHIVE", "SELECT 1", "--format=parquet", "-o")],
)
def test_a_full_disk_is_named(archive, capsys, line):
    told = refused(capsys, *(archive if word == "ARCHIVE" else word for word in line), "/dev/full")
    assert told == (3, "vmsonar: cannot write /dev/full: No space left on device\n")


def test_a_page_that_cannot_be_written(archive, tmp_path, capsys, monkeypatch):
    rename = os.rename

    def full(source, target, **folders):
        if Path(target).name == "page.html":
            raise OSError(28, "No space left on device")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", full)
    page = tmp_path / "page.html"
    told = refused(capsys, "inspect", archive, "--html", page)
    assert told == (3, f"vmsonar: cannot write {page}: No space left on device\n")
    assert list(tmp_path.glob(".page*")) == []


def test_a_view_that_there_is_not(archive, tmp_path, capsys):
    code, told = refused(capsys, "inspect", archive, "job")
    assert (code, told.startswith("vmsonar: job is neither a path nor a view: give one of summary, ")) == (
        2,
        True,
    )
    code, told = refused(capsys, "inspect", archive, tmp_path / "missing.tar")
    assert (code, "missing.tar does not exist" in told) == (3, True)


def test_whole_but_not_trusted(archive, tmp_path, capsys):
    assert cli.run(["verify", str(archive), "--head", "0" * 63 + "1"]) == 1
    assert "NOT TRUSTED" in capsys.readouterr().out


def test_a_tree_to_install_into_that_is_not_there(tmp_path, capsys):
    code, told = refused(capsys, "install", "--no-start", "--root", tmp_path / "imgae")
    assert (code, "is not a folder" in told) == (2, True)
    assert not (tmp_path / "imgae").exists()


def test_a_folder_of_bundles_is_no_archive(tmp_path, capsys):
    code, told = refused(capsys, "verify", tmp_path)
    assert (code, told.endswith("name bundles one by one, as FOLDER/*.tar\n")) == (3, True)


def test_a_head_that_is_none(archive, capsys):
    code, told = refused(capsys, "verify", archive, "--head", "abc")
    assert (code, "64 hex digits" in told) == (2, True)
