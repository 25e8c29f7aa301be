"""How a process of ours starts another one: the same Python, which looks for modules only where they are installed."""

import sys


def python(*words: str) -> list[str]:
    """The command line; the folder somebody happens to stand in is never searched (-P, or -I where we run so)."""
    return [sys.executable, "-I" if sys.flags.isolated else "-P", *words]
