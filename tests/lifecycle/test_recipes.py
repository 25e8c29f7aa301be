"""The recipes for orchestrators are read, and where that is possible run, by the tools that they are for."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lifecycle.vm import Vm, bundles
from tests.parts import requires
from vmsonar.lifecycle.install import shipped

RECIPES = Path(__file__).resolve().parents[2] / "docs/recipes"
SCRIPTS = Path(sys.executable).parent


def play(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [SCRIPTS / "ansible-playbook", RECIPES / "ansible.yml", "-i", "localhost,", "-c", "local"]
    settings = {**os.environ, "ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_LOCALHOST_WARNING": "False",
                "LC_ALL": "C.UTF-8"}  # fmt: skip
    return subprocess.run(
        [*command, *words], env=settings, capture_output=True, text=True, timeout=120, check=False
    )


def vmsonar(vm: Vm) -> str:
    """The command with this machine's configuration, as one word for a shell."""
    script = vm.root / "vmsonar"
    script.write_text(
        f'#!/bin/sh\nVMSONAR_CONFIG={vm.root}/config.yaml exec {sys.executable} -m vmsonar "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


@requires("ansible")
def test_ansible(vm, tmp_path):
    assert play(tmp_path, "--syntax-check", "-e", "single_file=x").returncode == 0
    vm.configure(str(tmp_path / "results"))
    here = ("--tags", "teardown", "-e", "ansible_become=false", "-e", f"vmsonar={vmsonar(vm)}",
            "-e", f"ansible_python_interpreter={sys.executable}")  # fmt: skip
    done = play(tmp_path, *here)
    assert done.returncode == 2, done.stdout
    assert "is not a folder here" in done.stdout
    (tmp_path / "results").mkdir()
    done = play(tmp_path, *here)
    assert done.returncode == 0, done.stdout
    (bundle,) = bundles(tmp_path / "results")
    assert str(bundle) in done.stdout


@requires("hcl2")
def test_terraform():
    import hcl2

    read = json.dumps(hcl2.loads((RECIPES / "terraform.tf").read_text()))
    assert "sudo vmsonar teardown --limit 2min" in read
    assert "cloudinit_config" in read


@requires("shellcheck")
@pytest.mark.parametrize(
    "script", [RECIPES / "openstack.sh", RECIPES / "ssh.sh", shipped("setup.sh")], ids=str
)
def test_scripts(script):
    subprocess.run(["sh", "-n", script], check=True)
    subprocess.run(["shellcheck", script], check=True)


def test_plain_ssh(vm, tmp_path):
    """The script itself, with an ssh that goes nowhere: first where the bundle is safe, then where it is not."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, content in {
        "ssh": 'shift; exec sh -c "$*"',
        "sudo": 'exec "$@"',
        "vmsonar": f'exec {shlex.quote(vmsonar(vm))} "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{content}\n")
        (tools / name).chmod(0o755)
    settings = {**vm.environment, "PATH": f"{tools}:{os.environ['PATH']}"}
    vm.configure(str(tmp_path / "gone"))
    command = [RECIPES / "ssh.sh", "vm1", tmp_path / "vm.tar"]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert vm.numbers(tmp_path / "vm.tar") == list(range(2, 42))
    (tmp_path / "vm.tar").unlink()
    (tmp_path / "gone").mkdir()
    assert subprocess.run(command, env=settings, capture_output=True, timeout=60, check=False).returncode == 0
    assert not (tmp_path / "vm.tar").exists()


def test_openstack_stops_before_it_deletes(tmp_path):
    (tmp_path / "openstack").write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n[ "$2" != show ] || echo SHUTOFF\n'
    )
    (tmp_path / "vmsonar").write_text(f'#!/bin/sh\nexec {sys.executable} -m vmsonar "$@"\n')
    for name in ("openstack", "vmsonar"):
        (tmp_path / name).chmod(0o755)
    settings = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for action in ("create", "remove"):
        subprocess.run([RECIPES / "openstack.sh", action, "vm1"], env=settings, cwd=tmp_path, check=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[1] for line in asked] == ["create", "stop", "show", "delete"]
    assert (tmp_path / "user-data").read_text().startswith("#cloud-config\n")
