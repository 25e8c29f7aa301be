"""The script `vmsonar`, and `python -m vmsonar`: takes the signals before anything that takes time is loaded."""

from typing import NoReturn

from vmsonar.daemon.signals import end_at_signals, leave


def main() -> NoReturn:
    came = end_at_signals()
    try:
        from vmsonar import cli
    except KeyboardInterrupt:
        leave(128 + came[0])
    cli.main(came=came)


if __name__ == "__main__":
    main()
