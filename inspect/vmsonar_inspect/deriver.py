"""Run as a program: derives the units that it is handed on standard input, and hands back what was found damaged."""

import pickle
import sys


def main() -> None:
    # What comes in was written by the process that started this one.
    units, tables = pickle.load(sys.stdin.buffer)  # noqa: S301
    import pyarrow

    # There is a process for every core already.
    pyarrow.set_cpu_count(1)
    for unit in units:
        unit.derive(tables)
    pickle.dump([unit.findings for unit in units], sys.stdout.buffer)


if __name__ == "__main__":
    main()
