"""How every companion starts: `--listen PATH` as a unit or `--fd N` as the recorder's child, and how it leaves."""

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NoReturn

from vmsonar_archive.system.errors import VmsonarError
from vmsonar_archive.system.text import printable


def start(
    name: str, purpose: str, add_options: Callable[[ArgumentParser], None], main: Callable[[Namespace], int]
) -> NoReturn:
    """Runs it until it ends or is told to; a failure is one line."""
    parser = ArgumentParser(prog=name, description=purpose)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="PATH", help="a socket to make, for the recorder to connect to")
    where.add_argument("--fd", type=int, metavar="N", help="a connected socket inherited from the recorder")
    add_options(parser)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        sys.exit(main(options))
    except VmsonarError as failure:
        print(f"{name}: {printable(str(failure))}", file=sys.stderr)
        sys.exit(failure.exit_code)
