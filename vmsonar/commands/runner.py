"""One command from start to card, for `vmsonar run`: without typer, so that the command begins a little sooner."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from vmsonar.daemon.run_folders import KEPT, RunFolders
from vmsonar.daemon.supervisor import NOT_FOUND, NOT_RUNNABLE, Outcome, Recorder, leave, supervise

if TYPE_CHECKING:
    from vmsonar_inspect.facts.runs import RunUse

#: Seconds from which on a command is judged, and from which on a failure is looked into.
_JUDGED, _EXAMINED = 20.0, 2.0
# What takes libraries and memory to write.
_LARGE = ("html", "bundle")
# Signals that need no explanation.
_PLAIN = (None, signal.SIGINT, signal.SIGPIPE)


@dataclass(frozen=True)
class RunOptions:
    """What was asked for."""

    command: tuple[str, ...]
    archive: Path | None = None
    interval: str = "1s"
    keep: int = KEPT
    quiet: bool = False
    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    bundle: Path | None = None

    @property
    def outputs(self) -> list[Path]:
        named = (self.json, self.markdown, self.html, self.bundle)
        return [path for path in named if path is not None]

    @property
    def wants_card(self) -> bool:
        return not self.quiet or self.json is not None or self.markdown is not None


def quick_options(words: Sequence[str]) -> RunOptions | None:
    """The options where they are plain; None where the full command line must look at them, and may complain."""
    left: list[str] = list(words)
    found: dict[str, Any] = {}
    while left and left[0].startswith("-") and left[0] != "--":
        name, equals, value = left.pop(0).removeprefix("--").partition("=")
        if name == "quiet" and not equals:
            found["quiet"] = True
            continue
        if name not in ("archive", "json", "markdown", "html", "bundle") or not (equals or left):
            return None
        text = value if equals else left.pop(0)
        if text or name != "archive":  # an empty one is none, not the current folder
            found[name] = Path(text)
    if left[:1] == ["--"]:
        del left[0]
    return RunOptions(tuple(left), **found) if left else None


def run_and_report(options: RunOptions) -> NoReturn:
    """Runs the command, tells what it used, and ends as it did."""
    gc.disable()  # we live shortly, or wait
    recorder = Recorder()
    archive = _record(options, recorder)
    try:
        outcome = supervise(list(options.command), recorder, options.outputs)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _say(f"{options.command[0]}: {'command not found' if missing else error.strerror}")
        if archive is not None and options.archive is None:
            from shutil import rmtree

            recorder.abandon()
            rmtree(archive, ignore_errors=True)
        os._exit(NOT_FOUND if missing else NOT_RUNNABLE)
    if archive is not None and not recorder.has_record:
        if options.archive is None:
            with suppress(OSError):
                archive.rmdir()  # nothing is in it
        archive = None
    try:
        _report(options, outcome, archive, recorder.trouble)
    except Exception as error:  # whatever the report meets, the command's end is ours
        _say(f"no report: {error or type(error).__name__}")
    leave(outcome)


def _record(options: RunOptions, recorder: Recorder) -> Path | None:
    """Starts the recorder; returns the archive, None where there is none."""
    from vmsonar_archive.system.children import python

    try:
        archive = (options.archive or RunFolders.of_user().begin(options.command[0])).absolute()
        recorder.start(python("-m", "vmsonar.daemon", "--command", str(archive), options.interval))
    except OSError as error:
        recorder.trouble = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return None
    import json  # noqa: F401  while the recorder starts, what will be needed is loaded

    if options.wants_card:
        import vmsonar_inspect.show.card  # noqa: F401

    recorder.wait_ready()
    return archive


def _report(options: RunOptions, outcome: Outcome, archive: Path | None, trouble: str | None) -> None:
    if options.wants_card or options.html is not None or options.bundle is not None:
        use = _use(options, outcome, archive)
        use.trouble = trouble
        if not options.quiet:
            from vmsonar_inspect.show.card import card_lines

            _tell("\n".join(["", *card_lines(use, _width()), ""]))
        _write(options, use, archive)
    if archive is not None and options.archive is None:
        RunFolders.of_user().prune(archive, options.keep)


def _use(options: RunOptions, outcome: Outcome, archive: Path | None) -> "RunUse":
    """What the record tells; without one what wait4 told."""
    from vmsonar_archive.system.errors import VmsonarError
    from vmsonar_inspect.facts.runs import read_run

    try:
        use = read_run(archive, outcome.totals)
    except (VmsonarError, OSError):
        use = read_run(None, outcome.totals)
    if use.command is None:
        from vmsonar.collectors.process.command import full

        use.command = full(list(options.command))
    elapsed = use.elapsed_seconds or 0.0
    failed = use.exit_signal not in _PLAIN or (use.exit_code and elapsed >= _EXAMINED)
    if archive is not None and use.samples and options.wants_card and (elapsed >= _JUDGED or failed):
        try:
            use.ended_by, use.verdicts, use.size = _apart(lambda: _judged(use, archive))
        except OSError as error:
            _say(f"facts only, no verdicts: {error}")
    return use


def _judged(use: "RunUse", archive: Path) -> tuple[Any, ...]:
    with suppress(Exception):  # without the extra [inspect], or room for tables, there are facts only
        from vmsonar_inspect.inspection import judge_run

        judge_run(use, archive)
    return use.ended_by, use.verdicts, use.size


def _apart(work: Callable[[], Any]) -> Any:
    """What a child finds: if the kernel or a library ends it, for lack of memory, the command's end is still ours."""
    import json

    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
            if sys.stderr is not None:  # the last words of a library
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            answer: tuple[Any, str | None]
            try:
                answer = work(), None
            except Exception as error:
                answer = None, str(error) or type(error).__name__
            with open(told, "w", encoding="utf-8") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(told)
    with open(heard, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "an error"
        raise OSError(f"ended by {how}: is there too little memory?")
    found, trouble = json.loads(text)
    if trouble is not None:
        raise OSError(trouble)
    return found


def _write(options: RunOptions, use: "RunUse", archive: Path | None) -> None:
    """The files that were asked for; one that cannot be written is said, and the others are."""
    writers = {"json": _write_json, "markdown": _write_markdown, "html": _write_page, "bundle": _write_bundle}
    for name, write in writers.items():
        path: Path | None = getattr(options, name)
        if path is not None:
            work = partial(write, path, use, archive)
            try:
                _apart(work) if name in _LARGE else work()
            except Exception as error:  # whatever it is, the command's end is ours
                _say(f"no --{name}: {error or type(error).__name__}")


def _write_json(path: Path, use: "RunUse", _: object) -> None:
    import msgspec
    from vmsonar_archive.write.outputs import CARD, guard, whole

    with whole(guard(path, [], CARD, force=None)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(use), indent=2) + b"\n")


def _write_markdown(path: Path, use: "RunUse", _: object) -> None:
    from vmsonar_inspect.show.card import card_markdown

    with path.open("a", encoding="utf-8") as file:  # a CI job's summary has other parts
        file.write(card_markdown(use))


def _write_page(path: Path, use: "RunUse", archive: Path | None) -> None:
    from datetime import UTC

    from vmsonar_archive.system.rights import published
    from vmsonar_archive.write.outputs import PAGE, guard
    from vmsonar_inspect.inspection import InspectionSettings, opened
    from vmsonar_inspect.show.page.build import write_page

    record = _recorded(use, archive)
    place = guard(path, [record], PAGE, force=None)
    with opened([record], InspectionSettings(), quiet=True) as inspection, published(place) as reached:
        write_page(inspection, reached, UTC)


def _write_bundle(path: Path, use: "RunUse", archive: Path | None) -> None:
    from vmsonar_archive.bundle.make import bundle_to_file
    from vmsonar_archive.bundle.worker import BundleOptions
    from vmsonar_archive.system.progress import Progress
    from vmsonar_archive.write.outputs import OutputKind

    kind = OutputKind("a bundle of one command", _is_bundle)
    bundle_to_file(_recorded(use, archive), path, Progress("bundling"), BundleOptions(), replaces=kind)


def _is_bundle(file: BinaryIO) -> bool:
    """Whether it is one of ours: what `vmsonar bundle` made of a machine may be all that is left of that."""
    from vmsonar_archive.system.errors import VmsonarError
    from vmsonar_inspect.facts.runs import read_run

    with suppress(VmsonarError, ValueError):
        return read_run(Path(file.name)).samples > 0
    return False


def _recorded(use: "RunUse", archive: Path | None) -> Path:
    if archive is None or not use.samples:
        raise OSError("there is no record")
    return archive


def _width() -> int:
    try:
        return max(40, os.get_terminal_size(2).columns)
    except OSError:
        return 200


def _say(text: object) -> None:
    _tell(f"vmsonar: {' '.join(str(text).split())}\n")


def _tell(text: str) -> None:
    if sys.stderr is not None:  # closed by whoever started us
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
