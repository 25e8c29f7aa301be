"""The companion's entry: `python -m vmsonar.companion --listen PATH` as a unit, `--fd N` as the daemon's child."""

import argparse
import resource
import signal
import socket
import sys
import threading
from pathlib import Path

from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.text import printable

from vmsonar.companion.api import CompanionSettings
from vmsonar.companion.follow import Follower
from vmsonar.companion.hub import Hub
from vmsonar.companion.listeners import listen_on
from vmsonar.companion.lives import Lives

# An engine that sends without end must not take the machine's memory.
_MAX_DATA = 256 * 1024 * 1024
_MAX_DESCRIPTORS = 16_384


def main() -> int:
    """Follows the engines until told to stop, or until the daemon that started it is gone."""
    options = _parse(sys.argv[1:])
    sockets, settings = _settings(options)
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_DATA, _MAX_DATA))
    hub = Hub(Lives(settings.host, limit=_descriptors() // 2))
    stopping = _stop_on_signals(hub)
    if options.fd is not None:
        hub.add(socket.socket(fileno=options.fd))
    else:
        hub.listen(listen_on(options.listen))
    for path in sockets:
        follower = Follower(path, hub.put, settings)
        threading.Thread(target=follower.run, args=(stopping,), daemon=True).start()
    hub.run(stopping, until_alone=options.fd is not None)
    if options.listen is not None:
        Path(options.listen).unlink(missing_ok=True)
    return 0


def _descriptors() -> int:
    """How many descriptors we may have: each container takes a dozen."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, _MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="vmsonar.companion", description="Tells vmsonar what containers are called."
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="PATH", help="a socket to make, for the sampler to connect to")
    where.add_argument("--fd", type=int, metavar="N", help="a connected socket inherited from the sampler")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="read sockets, labels and command_line here"
    )
    parser.add_argument("--socket", action="append", default=[], metavar="PATH", help="an engine to ask")
    parser.add_argument("--label", action="append", default=[], metavar="PATTERN", help="a label to pass on")
    parser.add_argument("--command-line", default="program", choices=("none", "program", "full"))
    parser.add_argument("--answer-seconds", type=float, default=CompanionSettings().answer_seconds)
    parser.add_argument("--window-seconds", type=float, default=CompanionSettings().window_seconds)
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> tuple[list[str], CompanionSettings]:
    """From the arguments where they name sockets, else from the configuration file."""
    waits = {"answer_seconds": options.answer_seconds, "window_seconds": options.window_seconds}
    if options.socket:
        return options.socket, CompanionSettings(
            labels=tuple(options.label), command_line=options.command_line, **waits
        )
    # Only as a unit: a companion started by the daemon is told, and need not load a YAML reader.
    from vmsonar.collectors.container.wire import engine_sockets
    from vmsonar.config.file import load_config

    config = load_config(options.config)
    settings = CompanionSettings(
        labels=tuple(config.containers.labels),
        command_line=config.command_line,
        host=config.host,
        **waits,
    )
    return engine_sockets(config.containers, Path("/run")), settings


def _stop_on_signals(hub: Hub) -> threading.Event:
    stopping = threading.Event()

    def stop(_signal: int, _frame: object) -> None:
        stopping.set()
        hub.wake()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return stopping


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VmsonarError as failure:
        print(f"vmsonar.companion: {printable(str(failure))}", file=sys.stderr)
        sys.exit(failure.exit_code)
