"""The companion's entry: `python -m vmsonar.companion --listen PATH` as a unit, `--fd N` as the daemon's child."""

import resource
import signal
import socket
import threading
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn

from vmsonar.companion.api import CompanionSettings
from vmsonar.companion.entry import start
from vmsonar.companion.follow import Follower
from vmsonar.companion.hub import Hub
from vmsonar.companion.listeners import listen_on
from vmsonar.companion.lives import Lives

# An engine that sends without end must not take the machine's memory.
_MAX_DATA = 256 * 1024 * 1024
_MAX_DESCRIPTORS = 16_384


def _run(options: Namespace) -> int:
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


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="read sockets, labels and command_line here"
    )
    parser.add_argument("--socket", action="append", default=[], metavar="PATH", help="an engine to ask")
    parser.add_argument("--label", action="append", default=[], metavar="PATTERN", help="a label to pass on")
    parser.add_argument("--command-line", default="program", choices=("none", "program", "full"))
    parser.add_argument("--answer-seconds", type=float, default=CompanionSettings().answer_seconds)
    parser.add_argument("--window-seconds", type=float, default=CompanionSettings().window_seconds)


def _settings(options: Namespace) -> tuple[list[str], CompanionSettings]:
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


def main() -> NoReturn:
    """Follows the engines until told to stop, or until the daemon that started it is gone."""
    start("vmsonar.companion", "Tells vmsonar what containers are called.", _add_options, _run)


if __name__ == "__main__":
    main()
