"""The command line: one explicit list of commands, each imported only when it is asked for."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.text import printable

from vmsonar import __version__
from vmsonar.daemon.signals import end_at_signals, leave
from vmsonar.host.streams import prepare_streams

#: Every command: the module that has its function `NAME_command`, and its line in the list.
COMMANDS = {
    "daemon": ("vmsonar.commands.record", "Sample this machine until told to stop."),
    "sample": ("vmsonar.commands.record", "Take one sample: to look at, or for cron."),
    "sysinfo": ("vmsonar.commands.record", "Show what this machine is."),
    "status": ("vmsonar.commands.health", "Is the recorder healthy?"),
    "slurm": ("vmsonar.commands.slurm", "Ask Slurm once, as the recorder would, and show what it tells."),
    "doctor": ("vmsonar.commands.health", "What can be seen here, what not, and how to change that."),
    "idle": ("vmsonar.commands.idle", "Did this machine do nothing lately? By exit code, for autostop."),
    "forward": ("vmsonar.commands.forward", "Send records to Kafka, HTTP or OpenTelemetry."),
    "metrics": ("vmsonar.commands.metrics", "Show the present state to Prometheus."),
    "collect": ("vmsonar.commands.collect", "Take in what a fleet of machines ships."),
    "install": ("vmsonar.commands.install", "Make it a service of this machine."),
    "uninstall": ("vmsonar.commands.install", "Take the service away again."),
    "cloud-init": ("vmsonar.commands.install", "Print user-data that installs it on a new VM."),
    "teardown": ("vmsonar.commands.teardown", "Bring what was recorded to safety before the VM is gone."),
    "bundle": ("vmsonar.commands.bundle", "Make one transportable file of an archive."),
    "verify": ("vmsonar.commands.verify", "Is an archive, bundle or lake whole and unaltered?"),
    "recover": ("vmsonar.commands.verify", "Save what is readable of a damaged archive or bundle."),
    "run": ("vmsonar.commands.run", "Record one command, and say what it used."),
    "runs": ("vmsonar.commands.run", "List the commands that were recorded."),
    "compare": ("vmsonar.commands.compare", "Compare runs, archives, bundles or jobs; gates for CI."),
    "inspect": ("vmsonar.commands.inspect", "What happened on a machine, and what size would have done."),
    "top": ("vmsonar.commands.top", "Who uses this machine now, and a moment ago."),
    "sql": ("vmsonar.commands.sql", "Answer an SQL query over archives, bundles and lakes."),
    "serve": ("vmsonar.commands.serve", "Serve a fleet: API, dashboard, and uploads."),
    "export": ("vmsonar.commands.export", "Write other tools' layouts: a lake, CSV, Sonar's tree, metrics."),
    "derive": ("vmsonar.commands.export", "Make the Parquet tables of finished days."),
}


def load(name: str) -> Any:
    """The command object of that name; imports its module."""
    module = import_module(COMMANDS[name][0])
    app = _typer(add_completion=False)
    app.command(name=name)(getattr(module, f"{name.replace('-', '_')}_command"))
    command: Any = typer.main.get_command(app)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _show_plainly(parameter)
    return command


def _show_plainly(argument: Any) -> None:
    """Shows an argument by its metavar alone: typer would add braces, dots and its Python type."""
    argument.get_usage_pieces = lambda _context: [argument.metavar]
    argument.display_type_rich = lambda ctx: None


def _typer(**settings: Any) -> typer.Typer:
    # rich would cost 65 ms on every --help and draw boxes that nobody can grep
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        **settings,
    )


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)  # typer suggests one of these names for a misspelt one

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"vmsonar {__version__}")
        raise typer.Exit


def root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Records what happens on an ephemeral cloud VM and explains it after the VM is gone.

    Example: vmsonar daemon --archive /tmp/archive --for 60s
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def command_line() -> Any:
    """The whole command line as one command object."""
    app = _typer(cls=LazyGroup, invoke_without_command=True)
    app.callback()(root)
    return typer.main.get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = command_line().main(args=arguments, prog_name="vmsonar", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return Exit.NO
    except Exception as error:
        return _answer(error)
    return code if isinstance(code, int) else Exit.OK


def _answer(error: Exception) -> int:
    """Prints an expected error in one line; anything else is a bug and keeps its traceback."""
    if isinstance(error, VmsonarError):
        return _complain("vmsonar", str(error), error.exit_code)
    if isinstance(error, typer.Abort):
        return 130
    if hasattr(error, "format_message"):  # the usage errors of typer share no public class
        path = getattr(getattr(error, "ctx", None), "command_path", "vmsonar")
        message = error.format_message().rstrip(".")
        return _complain(path, f"{message} (see: {path} --help)", Exit.USAGE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        remedy = ": ask as root, as its owner, or in its group" if isinstance(error, PermissionError) else ""
        return _complain("vmsonar", f"{where}{error.strerror or error}{remedy}", Exit.CANNOT)
    raise error


def _complain(who: str, message: str, code: int) -> int:
    print(f"{who}: {printable(' '.join(message.split()))}", file=sys.stderr)
    return int(code)


def _forget_stdout() -> None:
    """Keeps the interpreter, on its way out, from complaining about a reader that has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None, came: Sequence[int] | None = None) -> NoReturn:
    """Runs one command line and ends this process; `came` holds the signals, where somebody takes them already."""
    prepare_streams()
    came = end_at_signals() if came is None else came
    code: int = Exit.OK
    try:
        code = run(arguments)
    except Exception:
        # DuckDB turns the interruption of a query into an error of its own.
        if not came:
            raise
    if came:
        leave(128 + came[0])
    sys.exit(code)
