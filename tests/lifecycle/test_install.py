"""Installing writes what applies, twice is the same as once, and uninstalling leaves nothing but the archive."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.system.errors import UsageError, VmsonarError

from tests.lifecycle.examples import VARIANTS, render
from tests.parts import requires
from vmsonar.cli import COMMANDS, run
from vmsonar.config.file import parse_config
from vmsonar.lifecycle.cloud_init import Choices, Site, check, config_for, user_data
from vmsonar.lifecycle.install import Choice, Installer, shipped

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


def links(root: Path) -> dict[str, str]:
    units = root / "etc/systemd/system"
    return {str(link.relative_to(units)): str(link.readlink()) for link in units.glob("*.wants/*")}


def test_an_image_has_its_units_enabled_without_systemd_on_the_host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("docker:x:999:\n")
    (tmp_path / "etc/.updated").touch()
    (tmp_path / "opt/vmsonar/lib/python3.11/site-packages/pyarrow").mkdir(parents=True)
    installer = Installer(tmp_path)
    installer.install(Choice(save=True), start=False)
    at = "/etc/systemd/system"
    assert links(tmp_path) == {
        "multi-user.target.wants/vmsonar.service": f"{at}/vmsonar.service",
        "vmsonar.service.wants/vmsonar-containers.service": f"{at}/vmsonar-containers.service",
        "multi-user.target.wants/vmsonar-bundle.service": f"{at}/vmsonar-bundle.service",
        "timers.target.wants/vmsonar-increment.timer": f"{at}/vmsonar-increment.timer",
        "timers.target.wants/vmsonar-derive.timer": f"{at}/vmsonar-derive.timer",
    }
    assert not (tmp_path / "etc/.updated").exists(), "the next boot would not create the user"
    installer.install(Choice(one_shot=True), start=False)
    assert "multi-user.target.wants/vmsonar.service" not in links(tmp_path), "each would stop the other"
    assert "timers.target.wants/vmsonar-sample.timer" in links(tmp_path)
    installer.uninstall(purge=False)
    assert links(tmp_path) == {}
    assert not list((tmp_path / "etc/systemd").rglob("*vmsonar*"))


def test_accounts_are_off_unless_chosen_and_gone_after_uninstalling(tmp_path, capsys):
    (tmp_path / "opt/vmsonar/bin").mkdir(parents=True)
    (tmp_path / "opt/vmsonar/bin/python").symlink_to("/usr/bin/python3")
    root = ("--root", str(tmp_path), "--no-start")
    assert run(["install", *root]) == 0
    assert "vmsonar.service.wants/vmsonar-accounts.service" not in links(tmp_path)
    preset = tmp_path / "etc/systemd/system-preset/50-vmsonar.preset"
    assert "enable vmsonar-accounts.service" not in preset.read_text()
    assert run(["install", *root, "--accounts"]) == 0
    assert "vmsonar-accounts.service" in capsys.readouterr().out
    assert "vmsonar.service.wants/vmsonar-accounts.service" in links(tmp_path)
    assert "enable vmsonar-accounts.service" in preset.read_text()
    assert run(["install", *root, "--accounts", "--one-shot"]) == 2
    assert run(["uninstall", "--root", str(tmp_path)]) == 0
    assert not list((tmp_path / "etc/systemd").rglob("*vmsonar*"))


def test_the_unit_for_accounts_has_one_capability_and_two_families():
    text = shipped("units/vmsonar-accounts.service").read_text()
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    assert (said["AmbientCapabilities"], said["CapabilityBoundingSet"]) == ("CAP_NET_ADMIN", "CAP_NET_ADMIN")
    assert said["RestrictAddressFamilies"] == "AF_NETLINK AF_UNIX"
    assert said["User"] == "vmsonar"
    # In namespaces of its own the kernel would tell it nothing.
    assert not said.keys() & {"PrivateNetwork", "PrivateUsers", "PrivatePIDs"}


def test_every_unit_that_is_enabled_says_by_what():
    """Only WantedBy= is understood where an image is changed without systemd."""
    for unit in UNITS:
        install = unit.read_text().partition("[Install]\n")[2]
        assert all(line.startswith("WantedBy=") for line in install.split("\n") if line), unit


def test_the_machine_that_builds_an_image_is_left_alone(tmp_path):
    outside = tmp_path / "host"
    (outside / "system/multi-user.target.wants").mkdir(parents=True)
    (outside / "system/vmsonar.service").touch()
    (tmp_path / "image/etc").mkdir(parents=True)
    (tmp_path / "image/etc/systemd").symlink_to(outside)
    installer = Installer(tmp_path / "image")
    before = sorted(outside.rglob("*"))
    for act in (
        lambda: installer.install(Choice(), start=False),
        lambda: installer.uninstall(purge=False),
    ):
        with pytest.raises(VmsonarError, match="leads out of"):
            act()
    assert sorted(outside.rglob("*")) == before


def test_a_drop_in_is_not_removed_through_a_link_out_of_the_image(tmp_path):
    outside = tmp_path / "host"
    outside.mkdir()
    (outside / "vmsonar-save.conf").touch()
    (tmp_path / "image/etc/systemd/system").mkdir(parents=True)
    (tmp_path / "image/etc/systemd/system/vmsonar-bundle.service.d").symlink_to(outside)
    with pytest.raises(VmsonarError, match="leads out of"):
        Installer(tmp_path / "image").install(Choice(), start=False)
    assert (outside / "vmsonar-save.conf").exists()


@pytest.mark.parametrize("name", ["etc/group", "etc/vmsonar/config.yaml"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_an_image_holds_is_read_only_where_it_is_a_plain_file_of_its_own(tmp_path, name, kind):
    place = tmp_path / "image" / name
    place.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(place)
    else:
        (tmp_path / "host").write_text("docker:x:1:\n")
        place.symlink_to(tmp_path / "host")
    with pytest.raises(VmsonarError, match="is not a plain file inside of"):
        Installer(tmp_path / "image").install(Choice(), start=False)


def test_units_that_would_find_nothing_to_run_are_not_installed(tmp_path, capsys):
    assert run(["install", "--root", str(tmp_path), "--no-start"]) == 3
    assert "opt/vmsonar/bin/python is not there, and the units run it" in capsys.readouterr().err
    assert tree(tmp_path) == {}
    (tmp_path / "opt/vmsonar/bin").mkdir(parents=True)
    (tmp_path / "opt/vmsonar/bin/python").symlink_to("/usr/bin/python3")
    assert run(["install", "--root", str(tmp_path)]) == 0
    assert "enabled, from the next boot on: vmsonar.service" in capsys.readouterr().out
    assert run(["uninstall", "--root", str(tmp_path / "gone")]) == 2


def test_systemd_is_told_and_a_failure_is_one_line(tmp_path):
    said: list[list[str]] = []

    class Live(Installer):
        def __init__(self) -> None:
            super().__init__(tmp_path, said.append)
            self._live = True

    Live().install(Choice(), start=True)
    assert ["systemctl", "daemon-reload"] in said
    assert ["systemctl", "--no-block", "restart", "vmsonar.service"] in said
    assert ["systemctl", "disable", "vmsonar-sample.timer"] in said
    assert ["systemctl", "--no-block", "stop", "vmsonar-sample.timer"] in said
    failing = Installer(Path("/"))
    with pytest.raises(VmsonarError, match=r"^false failed: |is not here"):
        failing._run(["false"])


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_every_unit_runs_a_command_that_exists(unit):
    known = set(COMMANDS)
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
        user_data(Site(wheels="/w", config={"intervall": "30s"}))


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


PINNED = "vmsonar==1.2 --hash=sha256:" + "0" * 64 + "\n"


def test_a_machine_installs_nothing_whose_hash_nobody_gave(tmp_path, capsys):
    """The name vmsonar in a public index is not ours: it is never looked up there."""
    assert run(["cloud-init", "--interval", "30s"]) == 2
    told = capsys.readouterr().err
    assert "--wheels DIR" in told
    assert "--single-file URL with --sha256" in told
    assert "--index URL with --requirements FILE" in told
    assert run(["cloud-init", "--package", "vmsonar"]) == 2
    pinned = tmp_path / "requirements.txt"
    index = ("--index", "https://packages.example.org/simple", "--requirements", str(pinned))
    capsys.readouterr()
    for text, reason in (
        ("vmsonar==1.2\n", "is not NAME==VERSION --hash"),
        (PINNED + "--extra-index-url https://x\n", "is not NAME==VERSION --hash"),
        (PINNED + "msgspec>=0.18 --hash=sha256:" + "0" * 64, "is not NAME==VERSION --hash"),
        (PINNED.replace("vmsonar", "other"), "does not name vmsonar==VERSION"),
    ):
        pinned.write_text(text)
        assert run(["cloud-init", *index]) == 2
        assert reason in capsys.readouterr().err
    pinned.write_text("# ours\n" + PINNED.replace(" --hash", " \\\n    --hash"))
    assert run(["cloud-init", *index[:2]]) == 2
    assert run(["cloud-init", *index, "--wheels", "/w"]) == 2
    assert run(["cloud-init", "--index", "http://x/", *index[2:]]) == 2
    assert run(["cloud-init", "--index", "https://x/", "--requirements", str(tmp_path / "gone")]) == 3
    capsys.readouterr()
    assert run(["cloud-init", *index, "--kafka", "b:9092", "--cluster", "c"]) == 0
    text = capsys.readouterr().out
    assert "NODE_EXTRAS=kafka\n" in text
    document = yaml.safe_load(text)
    assert document["write_files"][2]["content"].split() == PINNED.split()
    assert document["runcmd"][0][1:3] == [
        "VMSONAR_INDEX=https://packages.example.org/simple", "VMSONAR_REQUIREMENTS=/etc/vmsonar/requirements.txt"
    ]  # fmt: skip


BY_NAME = re.compile(r"(?:install|download)\b(?:.*\\\n)*.*[ ']vmsonar(?![\w/-])")


def without_hashes(text: str) -> list[str]:
    """Calls of pip that would take what an index gives them."""
    calls = re.findall(r"(?m)^.*\bpip[\"']?(?: --\S+)* (?:install|download)\b(?:.*\\\n)*.*$", text)
    return [call for call in calls if "--require-hashes" not in call and "--no-index" not in call]


def test_neither_user_data_nor_a_page_looks_the_name_up_in_an_index():
    root = Path(__file__).resolve().parents[2]
    for name in VARIANTS:
        text = render(VARIANTS[name])
        assert "pip" in text
        assert without_hashes(text) == []
        assert re.search("VMSONAR_(WHEELS|SINGLE|INDEX)=", str(yaml.safe_load(text)["runcmd"]))
    pages = [
        root / "README.md",
        *root.glob("docs/**/*.md"),
        *root.glob("docs/recipes/*"),
        shipped("setup.sh"),
        root / "Makefile",
    ]
    for page in pages:
        found = [call for call in without_hashes(page.read_text()) if BY_NAME.search(call)]
        assert found == [], page


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "no name is looked up in a public index"),
        ({"VMSONAR_PACKAGE": "vmsonar"}, "no name is looked up in a public index"),
        ({"VMSONAR_SINGLE": "/v.pyz"}, "needs VMSONAR_SHA256"),
        ({"VMSONAR_WHEELS": "/nowhere"}, "build the folder with make wheelhouse"),
        ({"VMSONAR_INDEX": "https://x/"}, "needs VMSONAR_REQUIREMENTS"),
    ],
)
def test_the_script_refuses_before_it_does_anything(settings, reason):
    script = shipped("setup.sh").read_text().replace("place=/opt/vmsonar", "place=/nonexistent/vmsonar")
    environment = {"PATH": "/usr/bin:/bin", **settings}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert reason in done.stderr


def test_the_generator_refuses_what_could_not_work():
    with pytest.raises(UsageError, match="needs --cluster"):
        config_for(Choices(kafka="broker:9092"))
    with pytest.raises(UsageError, match="unknown"):
        config_for(Choices(upload_url="https://x/{host}"))
    with pytest.raises(VmsonarError, match=r"save\.notice"):
        user_data(Site(wheels="/w", config=config_for(Choices(notice="moon"))))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_examples_are_what_the_generator_prints(name):
    text = shipped(name).read_text()
    assert text == render(VARIANTS[name]), "run: make docs"
    document = yaml.safe_load(text)
    check(document)
    parse_config(document["write_files"][0]["content"], name)


def test_a_server_can_be_reached_and_keeps_its_fleet(tmp_path, capsys):
    words = [
        "cloud-init",
        "--wheels",
        "/opt/wheels",
        "--serve",
        "--serve-url",
        "https://fleet.example.org:8443",
    ]
    assert run(words) == 0
    files = {one["path"]: one["content"] for one in yaml.safe_load(capsys.readouterr().out)["write_files"]}
    drop_in = files["/etc/systemd/system/vmsonar-serve.service.d/vmsonar-tls.conf"]
    command = drop_in.rstrip().rpartition("ExecStart=")[2]
    assert command.startswith("/opt/vmsonar/bin/python -I -m vmsonar serve --fleet")
    assert (
        "--listen 0.0.0.0:8443 --url https://fleet.example.org:8443 --tls-cert ${CREDENTIALS_DIRECTORY}/"
        in command
    )
    for wrong in (
        "http://fleet:8443",
        "https://fleet",
        "https://fleet:443",
        "https://a b:8443",
        "https://f:99999",
    ):
        assert run([*words[:-1], wrong]) == 2
    assert run([*words[:3], *words[4:]]) == 2
    chosen = Installer(tmp_path, lambda _: None).enabled(Choice(serve=True))
    assert {"vmsonar-serve.service", "vmsonar-collect.service"} <= set(chosen)


def test_a_server_is_told_who_may_ask(tmp_path, capsys):
    access = tmp_path / "access.yaml"
    access.write_text(f"tokens: [{{name: root, sha256: {'0' * 64}, role: admin}}]\n")
    words = ["cloud-init", "--wheels", "/w", "--access", str(access)]
    assert run([*words, "--serve"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    (written,) = [one for one in document["write_files"] if one["path"] == "/etc/vmsonar/access.yaml"]
    assert written["content"] == access.read_text()
    assert run(words) == 2
    access.write_text("tokens: [{name: root}]")
    assert run([*words, "--serve"]) == 2
    assert run([*words[:3], "--serve"]) == 0
    assert "# Nothing is served until /etc/vmsonar/access.yaml" in capsys.readouterr().out
