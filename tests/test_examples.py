"""Every example of every page and help is a command line that exists, and is run, here or where ELSEWHERE says."""

import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from vmsonar_inspect.advice.rules import load_rules

from tests.forward.http_server import Endpoint
from tests.making.machines import Box, Load, Machine, box_id
from tests.making.scenes import healthy
from tests.parts import need, requires
from tests.real.kafka import KafkaBroker
from tests.real.wait import let_pass
from vmsonar import cli
from vmsonar.config.file import parse_as
from vmsonar.config.schema import Config
from vmsonar.fleet.serve.access import Access

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/recipes/*.sh"))]
#: What is not run here, and the test that runs it for real.
ELSEWHERE = {
    "analysis.md": "tests/inspect/tables/test_analysis_page.py",
    "-o @/": "tests/archive/bundle/test_upload.py",  # a signed URL, over HTTPS
    "--follow": "tests/inspect/show/test_terminal.py",  # a terminal
    "top": "tests/commands/test_top.py",  # a terminal
    "vmsonar serve": "tests/fleet/serve/test_server.py",  # runs until it is stopped
    "serve --help": "tests/fleet/serve/test_server.py",
    "README.md serve": "tests/fleet/serve/test_server.py",
    "serve.md serve": "tests/fleet/serve/test_server.py",
    "collect --help": "tests/fleet/test_sources.py",  # runs until it is stopped
    "README.md collect": "tests/fleet/test_sources.py",
    "fleet.md collect": "tests/fleet/test_sources.py",
    "slurm --json": "tests/collectors/slurm/test_real_slurm.py",  # a cluster
    "metrics --listen": "tests/forward/test_exporter.py",  # runs until it is stopped
    "--to otlp+http://127.0.0.1:4318": "tests/forward/test_otlp.py",  # an OpenTelemetry collector
    "idle --for": "tests/fleet/test_idle.py",  # of a machine that records now
    "compare main1.tar": "tests/daemon/test_run_recipes.py",  # with the loop that makes what it compares
}


CALL = re.compile(r"(^|sudo |-u vmsonar |ssh vm |&& |\| )vmsonar [a-z]")


def words_of(line: str) -> Iterator[list[str]]:
    """The command lines of vmsonar in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    found: list[str] | None = None
    for word in lexer:
        if word == "vmsonar" and not found:  # sudo -u vmsonar vmsonar …
            found = []
        elif found is not None and re.fullmatch(r"[|&;<>()]+", word):
            yield found
            found = None
        elif found is not None:
            found.append(word)
    if found is not None:
        yield found


def blocks(text: str) -> Iterator[str]:
    """Lines of code: fenced as shell, or indented after an empty line."""
    fence, is_code, before = "", False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            fence = line[3:] or "plain" if not fence else ""
        elif fence in ("sh", "bash", "console", "plain"):
            yield line
        elif not fence and line.startswith("    ") and (is_code or not before.strip()):
            is_code = True
            yield line.strip()
            continue
        is_code, before = False, line


def of_pages() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text()
        lines = blocks(text) if page.suffix == ".md" else text.splitlines()
        found += [
            (page.name, line)
            for line in lines
            if re.search(r"(^|sudo |-u vmsonar |ssh vm |&& |\| )vmsonar [a-z]", line)
        ]
    return found


def of_helps() -> list[tuple[str, str]]:
    found = []
    for name in cli.COMMANDS:
        text = cli.load(name).callback.__doc__ or ""
        found += [(f"{name} --help", line) for line in re.findall(r"Example: (.*)", text)]
    return found


# A synopsis stands for many command lines.
LINES = [
    (where, line)
    for where, line in dict.fromkeys(of_pages() + of_helps())
    if not re.search(r"PATH…|\[VIEW\]|\[--|\$|QUERY", line)
]


def _name(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value)[:60]


def commands() -> list[tuple[str, tuple[str, ...]]]:
    return [(where, tuple(words)) for where, line in LINES for words in words_of(line) if words]


def test_there_are_examples() -> None:
    pages = {where for where, _ in commands()}
    assert {"README.md", "inspect.md", "commands.md", "bundles.md", "daemon.md", "operations.md"} <= pages
    assert {f"{name} --help" for name in cli.COMMANDS if name != "install"} <= pages


#: Generated, or the glossary itself.
WITHOUT_LINK = {"accuracy", "answers", "architecture", "configuration", "format", "tables"}


def test_every_page_leads_to_the_glossary() -> None:
    pages = [page for page in PAGES if page.suffix == ".md" and page.stem not in WITHOUT_LINK]
    assert [page.name for page in pages if "architecture.md#words" not in page.read_text()] == []


def test_every_page_begins_with_an_example() -> None:
    pages = {page.name: page.read_text().splitlines()[:12] for page in PAGES if page.suffix == ".md"}
    del pages["README.md"]  # begins with a picture of one
    assert [
        name for name, head in pages.items() if not re.search(r"^(    \S|```)", "\n".join(head), re.M)
    ] == []


#: Blocks of YAML that are other programs' own: Prometheus, GitHub Actions, GitLab CI.
FOREIGN = ({"scrape_configs"}, {"steps"}, {"build"})
SETTINGS = [
    (page.name, text)
    for page in PAGES
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
]


@pytest.mark.parametrize(("where", "text"), SETTINGS, ids=_name)
def test_a_block_of_settings_is_taken(where: str, text: str, tmp_path: Path) -> None:
    text = re.sub(r"\b([0-9a-f]{4})…", lambda digest: digest[1] * 16, text)
    keys = yaml.safe_load(text).keys()
    if keys <= {"thin", "rules", "sizes"}:
        (tmp_path / "rules.yaml").write_text(text)
        load_rules(tmp_path / "rules.yaml")
    elif keys not in FOREIGN:
        parse_as(Access if "tokens" in keys else Config, text, where)


#: Lines of shell that call nothing of ours, and where they are run: the file, and what it calls.
OTHERS = {
    "sudo python3 vmsonar-….pyz": ("tests/lifecycle/test_single.py", '"python3", "/root/vmsonar.pyz"'),
    "pip install 'vmsonar[": (
        "tests/lifecycle/test_units.py",
        "-m pip install --quiet --no-index --find-links $1",
    ),
    "ssh-keygen -Y verify": ("tests/archive/bundle/test_signing.py", '"ssh-keygen", "-Y", "verify"'),
    "systemctl enable --now vmsonar-ipmi.timer": (
        "tests/collectors/energy/test_ipmi_guest.py",
        '"enable", "--now", "vmsonar-ipmi.timer"',
    ),
    "promtool tsdb create-blocks-from": (
        "tests/real/prometheus.py",
        '"promtool", "tsdb", "create-blocks-from"',
    ),
    "--bundle new$i.tar": ("tests/daemon/test_run_recipes.py", 'recipe("A gate")'),
    "sed -E": ("tests/test_examples.py", "\ndef test_a_history_goes_to_other_databases"),
    "curl --data-binary": ("tests/test_examples.py", "\ndef test_a_history_goes_to_other_databases"),
    # By hand: takes a quiet machine, and minutes.
    "python -m bench sampling": ("bench/__main__.py", "sampling"),
}


def test_lines_of_shell_without_our_command_are_run_somewhere() -> None:
    targets = re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.M)
    lines = [line.strip() for page in PAGES if page.suffix == ".md" for line in blocks(page.read_text())]
    tools = [
        line
        for line in lines
        if re.match(r"(sudo )?(make|pip|python3?|curl|sed|for|systemctl|ssh-keygen) ", line)
        and not CALL.search(line)
    ]
    made = {word for line in tools for word in re.findall(r"^(?:sudo )?make ([a-z -]+)", line)}
    assert {word for words in made for word in words.split()} <= {*targets}
    left = [line for line in tools if not re.match(r"(sudo )?make ", line)]
    assert [line for line in left if not any(part in line for part in OTHERS)] == []
    assert [
        part
        for part, (test, call) in OTHERS.items()
        if not any(part in line for line in left) or call not in (ROOT / test).read_text()
    ] == []


@pytest.mark.slow
def test_make_run(tmp_path: Path) -> None:
    """In a folder where what it installs is there already."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / ".venv/.runnable").touch()
    done = subprocess.run(
        ["make", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Top jobs" in done.stdout
    assert (tmp_path / "demo-page.html").exists()


@pytest.mark.parametrize(("where", "words"), commands(), ids=_name)
def test_the_command_line_takes_it(where: str, words: tuple[str, ...]) -> None:
    assert words[0] in cli.COMMANDS, where
    if "--help" in words:
        assert cli.run(list(words)) == 0
        return
    cli.load(words[0]).make_context(words[0], list(words[1:]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the pages name."""
    folder = tmp_path_factory.mktemp("examples")
    machine = healthy()
    # The times of the pages are of today, around noon.
    machine.start = datetime.now(UTC).replace(hour=11, minute=0, second=0, microsecond=0)
    machine.loads.append(Load(4711, "python3 train.py", user="anna", begin=0, cores=1.0))
    box = Box(box_id(1), "trainer", limit=2**30, oom_at=300)
    machine.boxes.append(box)
    machine.loads.append(Load(4712, "./fit", begin=0, end=300, container=box.container_id))
    machine.record(folder / "archive", 4000)
    Machine(machine_id="f" * 32, hostname="vm-two").record(folder / "other", 60)
    (folder / "key.pub").write_text(_new_key(folder / "key"))
    for name in ("allowed_signers", "signers"):
        (folder / name).write_text(
            "".join(f"{who} {(folder / 'key.pub').read_text()}" for who in ("web1", "vm1"))
        )
    (folder / "bundles").mkdir()
    for name in ("vm.tar", "vm-1.tar", "vm1.tar", "bundles/one.tar"):
        signed = ["-o", str(folder / name), "--sign", str(folder / "key")]
        assert cli.run(["bundle", "--archive", str(folder / "archive"), *signed]) == 0
    assert cli.run(["bundle", "--archive", str(folder / "other"), "-o", str(folder / "bundles/two.tar")]) == 0
    (folder / "wheels").mkdir()
    (folder / "wheels" / "vmsonar-2.0-py3-none-any.whl").write_bytes(b"a wheel")
    (folder / "Makefile").write_text("all:\n\ttrue\n")
    (folder / "train.sh").write_text("#!/bin/sh\ntrue\n")
    (folder / "train.sh").chmod(0o755)
    (folder / "saved").mkdir()
    (folder / "waiting").mkdir()
    save = f"{{to: {folder}/saved, waiting: {folder}/waiting}}"
    (folder / "config.yaml").write_text(f"archive: archive\nsave: {save}\n")
    return folder


def _new_key(path: Path) -> str:
    need("ssh_keygen")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


def where_else(where: str, words: tuple[str, ...]) -> str | None:
    """The test that runs an example, if it is not this one."""
    line = f"{where} {' '.join(words)} "
    return next((test for part, test in ELSEWHERE.items() if f"{part} " in line or f" {part}" in line), None)


def runnable(sends: bool) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (where, words)
        for where, words in commands()
        if where_else(where, words) is None and (words[0] == "forward") == sends
    ]


def is_run_by(test: str, where: str, words: tuple[str, ...]) -> bool:
    """Whether a test reads that page itself, or calls the command with these options."""
    text = (ROOT / test).read_text()
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    calls = re.search(rf"[\"' ]{words[0]}[\"' ]", text)
    return f"docs/{where}" in text or bool(calls and all(option in text for option in options))


def test_what_is_run_elsewhere_is_run_there() -> None:
    told = [(test, *each) for each in commands() if (test := where_else(*each)) is not None]
    assert [each for each in told if not is_run_by(*each)] == []
    assert set(ELSEWHERE.values()) <= {test for test, *_ in told}, "an example that is gone"


#: Words of the pages, by what they are here; {tmp} is a folder for one example.
HERE = {
    "/var/lib/vmsonar-fleet/archives/ID": "archive",
    "/var/lib/vmsonar-fleet/archives": "bundles",
    "/var/lib/vmsonar": "archive",
    "/opt/vmsonar-wheels": "wheels",
    "/etc/ssh/ssh_host_ed25519_key": "key",
    "/tmp": "{tmp}",
    "lake/": "{tmp}/lake",
    "DIR": "wheels",
}
#: Options that keep an example to this folder, and to a second or two.
MORE = {
    "bundle": ("-o", "{tmp}"),
    "install": ("--root", "{tmp}"),
    "uninstall": ("--root", "{tmp}"),
    "sample": ("--archive", "{tmp}/fresh"),
}
#: Commands whose answer may be no: nobody records in this folder, and this machine has no GPU.
MAY_SAY_NO = {"status", "doctor", "compare", "metrics"}


def staged(words: tuple[str, ...], folder: Path) -> list[str]:
    """An example as it is run here."""
    line = []
    for word in words:
        for theirs, ours in HERE.items():
            word = (
                ours if word == theirs == "DIR" else word if theirs == "DIR" else word.replace(theirs, ours)
            )
        line.append(word.replace("{tmp}", str(folder)))
    if "--for" in line:
        line[line.index("--for") + 1] = "2s"
    more = [word.format(tmp=folder) for word in MORE.get(words[0], ())]
    if words[0] == "sample":
        return [words[0], *more]
    return line if more[:1] and more[0] in line else line[:1] + more + line[1:]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "words"), runnable(sends=False), ids=_name)
def test_it_runs(
    where: str, words: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("VMSONAR_ARCHIVE", str(place / "archive"))
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    if words[0] == "install":
        (tmp_path / "opt/vmsonar/bin").mkdir(parents=True)
        (tmp_path / "opt/vmsonar/bin/python").symlink_to(sys.executable)
    if words[0] == "teardown":
        monkeypatch.setenv("VMSONAR_CONFIG", str(place / "config.yaml"))
    if words[0] == "compare":
        make_runs(words)
    done = call(staged(words, tmp_path))
    assert done.returncode in ((0, 1) if words[0] in MAY_SAY_NO else (0,)), done.stderr.decode()
    assert b"Traceback" not in done.stderr
    if words[-2:] == ("-o", "-"):
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as bundle:
            assert bundle.getnames()


def make_runs(words: tuple[str, ...]) -> None:
    """The runs that a comparison takes by their numbers, and the bundles that it names."""
    # The last ten are of one command that ended alike, whatever other examples have run.
    for _ in range(10 if "--repeat" in words else 2):
        assert call(["run", "--quiet", "--", "true"]).returncode == 0
    for name in re.findall(r"\w+\.tar", " ".join(words)):
        assert (
            call(["run", "--quiet", "--bundle", name, "--archive", f"of-{name}", "--", "true"]).returncode
            == 0
        )


def call(line: list[str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "vmsonar", *line], capture_output=True, timeout=120, check=False
    )


@requires("kafka")
@pytest.mark.parametrize(("where", "words"), runnable(sends=True), ids=_name)
def test_it_sends(
    where: str, words: tuple[str, ...], place: Path, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    config, cluster = tmp_path / "config.yaml", f"examples-{tmp_path.name}"
    for topic in ("sample", "sysinfo"):
        kafka_broker.create_topic(f"{cluster}.{topic}")
    where_to = f"brokers: ['{kafka_broker.plaintext}'], tls: {{use: none}}"
    forward = f"{{cluster: {cluster}, {where_to}, state: {tmp_path}/state}}"
    config.write_text(f"archive: {place}/other\nforward: {forward}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "vmsonar", *words, "--config", str(config)], stderr=subprocess.PIPE
    )
    if "--once" not in words:
        let_pass(8)
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    # The record here is older than two hours.
    assert process.returncode == (1 if "--since" in words else 0), said.decode()


@pytest.mark.slow
def test_a_history_goes_to_other_databases(place: Path, tmp_path: Path) -> None:
    """The line of docs/grafana.md: what arrives is what VictoriaMetrics takes, a sample a line with milliseconds."""
    for tool in ("curl", "sed"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    history = ["export", str(place / "archive"), "--to", "openmetrics", "-o", str(tmp_path / "history")]
    assert call(history).returncode == 0
    (file,) = (tmp_path / "history").glob("*.om")
    (line,) = re.findall(r"^    (sed -E .*\n.*curl .*)$", (ROOT / "docs/grafana.md").read_text(), re.M)
    endpoint = Endpoint()
    line = line.replace("history/FILE.om", str(file)).replace("8428", str(endpoint.port))
    subprocess.run(["bash", "-eo", "pipefail", "-c", line], check=True, timeout=120, capture_output=True)
    endpoint.close()
    ((_, body),) = endpoint.taken
    sent = body.decode().splitlines()
    samples = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert len(sent) == len(samples) > 1000
    assert [line for line in sent if not re.fullmatch(r"\w+(\{.*\})? [-+.\w]+ \d{13}", line)] == []


def test_every_command_has_a_man_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "manual.py", tmp_path], check=True, timeout=60)
    pages = {path.name for path in tmp_path.iterdir()}
    assert pages == {"vmsonar.1", *(f"vmsonar-{name}.1" for name in cli.COMMANDS)}
    text = (tmp_path / "vmsonar-inspect.1").read_text()
    assert text.startswith(".TH VMSONAR-INSPECT 1")
    assert "\\-\\-min\\-runtime" in text
