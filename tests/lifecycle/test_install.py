"""Installing writes what applies, twice is the same as once, and uninstalling leaves nothing but the archive."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.errors import UsageError, VmsonarError

from tests.parts import requires
from vmsonar.cli import COMMANDS
from vmsonar.config_file import parse_config
from vmsonar.lifecycle.install import Choice, Installer
from vmsonar.lifecycle.shipped import shipped
from vmsonar.lifecycle.user_data import Choices, Site, check, config_for, user_data, with_extras
from vmsonar.lifecycle.variants import VARIANTS, render

UNITS = sorted(shipped("units").glob("*.service")) + sorted(shipped("units").glob("*.timer"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_image_without_an_engine_gets_no_unit_that_would_fail(tmp_path):
    Installer(tmp_path).install(Choice(), start=False)
    files = tree(tmp_path)
    assert "etc/systemd/system/vmsonar.service" in files
    assert "etc/systemd/system/vmsonar-containers.service" not in files
    assert not any("drop-ins" in name or "service.d" in name for name in files)


def test_what_applies_is_installed(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("root:x:0:\ndocker:x:999:\n")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: 1\n")
    installer = Installer(tmp_path)
    installer.install(Choice(process_io=True), start=False)
    files = tree(tmp_path)
    assert "etc/systemd/system/vmsonar-containers.service" in files
    assert "etc/systemd/system/vmsonar.service.d/vmsonar-io.conf" in files
    assert "etc/systemd/system/vmsonar.service.d/vmsonar-nvidia.conf" in files
    assert installer.enabled(Choice()) == ["vmsonar.service", "vmsonar-containers.service"]
    assert installer.enabled(Choice(one_shot=True)) == ["vmsonar-sample.timer"]


def test_twice_is_once_and_uninstalling_keeps_the_archive(tmp_path):
    installer = Installer(tmp_path)
    installer.install(Choice(process_io=True), start=False)
    once = tree(tmp_path)
    installer.install(Choice(process_io=True), start=False)
    assert tree(tmp_path) == once
    (tmp_path / "var/lib/vmsonar").mkdir(parents=True)
    (tmp_path / "var/lib/vmsonar/archive.json").write_text("{}")
    for folder in ("usr/local/bin", "usr/local/sbin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/local/sbin/vmsonar-setup").write_text("#!/bin/sh\n")
    (tmp_path / "usr/local/bin/vmsonar").symlink_to("/opt/vmsonar/bin/vmsonar")
    installer.uninstall(purge=False)
    assert (tmp_path / "usr/local/bin/vmsonar").is_symlink()
    assert tree(tmp_path) == {"var/lib/vmsonar/archive.json": b"{}"}
    assert installer.uninstall(purge=True) == [
        str(tmp_path / name) for name in ("var/lib/vmsonar", "usr/local/bin/vmsonar")
    ]
    assert tree(tmp_path) == {}
    assert not (tmp_path / "usr/local/bin/vmsonar").is_symlink()


def test_systemd_is_told_and_a_failure_is_one_line(tmp_path):
    said: list[list[str]] = []

    class Live(Installer):
        def __init__(self) -> None:
            super().__init__(tmp_path, said.append)
            self._live = True

    Live().install(Choice(), start=True)
    assert ["systemctl", "daemon-reload"] in said
    assert ["systemctl", "--no-block", "restart", "vmsonar.service"] in said
    failing = Installer(Path("/"))
    with pytest.raises(VmsonarError, match=r"^false failed: |is not here"):
        failing._run(["false"])


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_every_unit_runs_a_command_that_exists(unit):
    known = {entry.name for entry in COMMANDS}
    for line in unit.read_text().splitlines():
        if line.startswith(("ExecStart=", "ExecStop=")) and " -m " in line:
            module, *words = re.split(r" -m ", line, maxsplit=1)[1].split()
            if module == "vmsonar":
                assert words[0] in known, line
            else:
                assert find_spec(module) is not None, line


@requires("systemd_guest")
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_every_unit_is_hardened(unit):
    """systemd's own judgement: 0 is best, 10 worst; common exporters get 7 to 9.6."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= 2.5


def test_user_data_is_a_list_of_commands_and_files_and_nothing_else():
    text = user_data(Site(config={"interval": "30s"}, wheels="/opt/wheels", options=("--process-io",)))
    assert text.startswith("#cloud-config\n")
    document = yaml.safe_load(text)
    assert set(document) == {"merge_how", "write_files", "runcmd"}
    assert document["runcmd"] == [
        ["env", "VMSONAR_WHEELS=/opt/wheels", "/usr/local/sbin/vmsonar-setup", "--process-io"]
    ]
    assert yaml.safe_load(document["write_files"][0]["content"]) == {"interval": "30s"}
    with pytest.raises(UsageError, match="unknown key run_cmd"):
        check({"run_cmd": []})


def test_a_configuration_that_the_daemon_would_refuse_is_refused_at_once():
    with pytest.raises(VmsonarError, match="intervall"):
        user_data(Site(config={"intervall": "30s"}))


def test_saving_enables_its_units_and_opens_the_one_folder(tmp_path):
    (tmp_path / "etc/vmsonar").mkdir(parents=True)
    (tmp_path / "etc/vmsonar/config.yaml").write_text("save: {to: '/mnt/results/{node}'}\n")
    installer = Installer(tmp_path)
    installer.install(Choice(save=True, forward=True), start=False)
    assert installer.enabled(Choice(save=True, forward=True)) == [
        "vmsonar.service", "vmsonar-bundle.service", "vmsonar-increment.timer", "vmsonar-forward.service"
    ]  # fmt: skip
    drop_in = "etc/systemd/system/vmsonar-bundle.service.d/vmsonar-save.conf"
    assert b"\nReadWritePaths=-/mnt/results\n" in tree(tmp_path)[drop_in]
    (tmp_path / "etc/vmsonar/config.yaml").write_text("save: {to: 's3://b/p/'}\n")
    installer.install(Choice(save=True), start=False)
    assert drop_in not in tree(tmp_path)


def test_extras_are_put_where_pip_reads_them():
    assert with_extras("vmsonar==1.2", "[sign]") == "vmsonar[sign]==1.2"
    assert with_extras("vmsonar", "[kafka,sign]") == "vmsonar[kafka,sign]"
    assert with_extras("https://x/vmsonar.whl", "[sign]") == "https://x/vmsonar.whl"


def test_the_generator_refuses_what_could_not_work():
    with pytest.raises(UsageError, match="needs --cluster"):
        config_for(Choices(kafka="broker:9092"))
    with pytest.raises(UsageError, match="unknown"):
        config_for(Choices(upload_url="https://x/{host}"))
    with pytest.raises(VmsonarError, match=r"save\.notice"):
        user_data(Site(config=config_for(Choices(notice="moon"))))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_examples_are_what_the_generator_prints(name):
    text = shipped(name).read_text()
    assert text == render(VARIANTS[name]), "run: make docs"
    document = yaml.safe_load(text)
    check(document)
    parse_config(document["write_files"][0]["content"], name)
