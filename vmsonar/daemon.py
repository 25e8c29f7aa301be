"""`python -m vmsonar.daemon`: the recorder, in a process that imports nothing it can do without."""

import sys
from collections.abc import Sequence

from vmsonar.lean import put_off


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line and runs the daemon; returns what the shell is told."""
    put_off()
    from vmsonar_archive.errors import VmsonarError

    from vmsonar.daemon_options import USAGE, parse
    from vmsonar.loop import run

    arguments = sys.argv[1:] if arguments is None else arguments
    if "--help" in arguments or "-h" in arguments:
        print(USAGE)
        return 0
    try:
        return run(parse(arguments))
    except VmsonarError as error:
        print(f"vmsonar: {error}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:
        print(f"vmsonar: {error.filename or 'daemon'}: {error.strerror or error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
