"""The script `vmsonar`, and `python -m vmsonar`: takes the signals before anything that takes time is loaded."""

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    if sys.argv[1:2] == ["run"]:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from vmsonar.daemon.__main__ import defer_imports

        defer_imports()
        from vmsonar.commands.runner import quick_options, run_and_report

        if (options := quick_options(sys.argv[2:])) is not None:
            run_and_report(options)
    from vmsonar.daemon.signals import end_at_signals, leave

    came = end_at_signals()
    try:
        from vmsonar import cli
    except KeyboardInterrupt:
        leave(128 + came[0])
    cli.main(came=came)


if __name__ == "__main__":
    main()
