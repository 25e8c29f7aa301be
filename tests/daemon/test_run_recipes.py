"""The recipes of docs/run.md, read and run as the tools they are for would."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from vmsonar_inspect.facts.runs import read_run

from tests.daemon.commands import ROOT, SECONDS, environment
from tests.parts import requires

_WORK = "#!/bin/sh\nexit 0\n"


def recipes():
    """Each recipe by the words that introduce it."""
    text = (ROOT / "docs/run.md").read_text().partition("## Recipes\n")[2]
    return dict(re.findall(r"^([^\n`][^\n]*):\n\n```\w+\n(.*?)```", text, re.DOTALL | re.MULTILINE))


def recipe(words):
    (found,) = [text for title, text in recipes().items() if words in title]
    return found


@pytest.fixture
def place(tmp_path):
    """A folder with what the recipes run; `vmsonar` is on the PATH."""
    scripts = dict.fromkeys(("train.sh", "run-tests", "bench", "solve"), _WORK)
    vmsonar = f'#!/bin/sh\nexec {sys.executable} -m vmsonar "$@"\n'
    (tmp_path / "bin").mkdir()
    for name, text in {**scripts, "bin/vmsonar": vmsonar}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Makefile").write_text("all:\n\t@true\n")
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


def shell(place, script, code=0, **more):
    settings = {
        **environment(place),
        "PATH": f"{place}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **more,
    }
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=place,
        env=settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_every_recipe_has_its_test():
    tested = re.findall(r'recipe\("(.+?)"\)', Path(__file__).read_text())
    assert len(recipes()) == 8
    assert all(any(words in title for words in tested) for title in recipes())


def test_a_shell(place):
    done = shell(place, recipe("In a shell"))
    assert done.stderr.count("command     ") == 1
    assert json.loads((place / "train.json").read_text())["exit_code"] == 0


def test_a_makefile(place):
    (place / "Makefile").write_text(recipe("In a Makefile"))
    shell(place, "make test")
    assert json.loads((place / "test.json").read_text())["command"] == "./run-tests"


def test_github_actions(place):
    run, upload = yaml.safe_load(recipe("GitHub"))["steps"]
    shell(place, run["run"], GITHUB_STEP_SUMMARY=f"{place}/summary")
    assert "| elapsed |" in (place / "summary").read_text()
    assert (place / upload["with"]["path"]).exists()


def test_gitlab(place):
    job = yaml.safe_load(recipe("GitLab"))["build"]
    shell(place, "\n".join(job["script"]))
    assert all((place / name).exists() for name in job["artifacts"]["paths"])


@pytest.mark.slow
def test_a_gate(place):
    script = recipe("A gate")
    shell(place, script.partition("\n")[0].replace("new$i", "main$i"))
    assert "gate cpu<=+5%: " in shell(place, script).stdout


def test_jupyter(place):
    line = recipe("Jupyter")
    assert line.startswith("!")  # the rest goes to a shell
    assert "trained" in shell(place, line[1:]).stdout


@requires("slurm")
def test_slurm(place, slurm_cluster):
    """Two tasks of a real Slurm."""
    there = {"SLURM_CONF": slurm_cluster.environment["SLURM_CONF"], "SLURM_NTASKS": "2"}
    shell(place, recipe("Slurm"), **there)
    for task in (0, 1):
        (told,) = json.loads(shell(place, f"vmsonar inspect record.{task} jobs --json").stdout)["rows"]
        assert told["program"]


@requires("docker")
def test_a_dockerfile(place, docker_engine):
    """As the first process of a real container, with the machine's own Python in place of an image's."""
    lines = dict(line.split(" ", 1) for line in recipe("Dockerfile").splitlines())
    words = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    ours = {"vmsonar": [sys.executable, "-m", "vmsonar"], "python": [sys.executable, "-S"]}
    (place / "train.py").write_text("import os; print('trained', os.getpid(), os.getppid())")
    places = {"/usr", "/lib", "/lib64", "/bin", sys.prefix, sys.base_prefix, str(ROOT)}
    mounts = [f"--volume={path}:{path}:ro" for path in sorted(places)]
    mounts += [f"--volume={place}/train.py:/train.py:ro", f"--volume={place}:/data"]
    told = docker_engine.run(
        *(part for word in words for part in ours.get(word, [word])),
        options=(*mounts, "--env", f"PYTHONPATH={environment(place)['PYTHONPATH']}"),
    )
    assert re.fullmatch(r"trained [0-9]+ 1", told)
    assert read_run(place / "record").exit_code == 0
