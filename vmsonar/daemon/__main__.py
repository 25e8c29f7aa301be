"""`python -m vmsonar.daemon`: the recorder, in a process that imports nothing it can do without."""

import sys
from collections.abc import Sequence

from vmsonar.daemon.deferred_imports import put_off


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and runs the daemon; returns the exit code."""
    put_off()
    from vmsonar_archive.system.errors import VmsonarError
    from vmsonar_archive.system.text import printable

    from vmsonar.daemon.loop import run
    from vmsonar.daemon.options import USAGE, parse

    arguments = sys.argv[1:] if arguments is None else arguments
    if "--help" in arguments or "-h" in arguments:
        print(USAGE)
        return 0
    try:
        return run(parse(arguments))
    except VmsonarError as error:
        print(f"vmsonar: {printable(str(error))}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:
        said = f"{error.filename or 'daemon'}: {error.strerror or error}"
        print(f"vmsonar: {printable(said)}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
