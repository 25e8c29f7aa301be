"""Runs the benchmarks and prints a table, then the same as JSON: `python -m bench [NAME…] [--json]`."""

import compileall
import json
import os
import sys
from dataclasses import asdict
from importlib import import_module

from bench import Figure

#: Every area, in the order in which they are run.
AREAS = (
    "archive",
    "bundle",
    "containers",
    "daemon",
    "ends",
    "fleet",
    "forward",
    "gpu",
    "inspect",
    "lake",
    "metrics",
    "listening",
    "netfs",
    "run",
    "sampling",
    "units",
    "serve",
)


def main(arguments: list[str]) -> int:
    wanted = [name for name in arguments if not name.startswith("-")] or list(AREAS)
    unknown = set(wanted) - set(AREAS)
    if unknown:
        print(
            f"bench: no such area: {', '.join(sorted(unknown))} (there are: {', '.join(AREAS)})",
            file=sys.stderr,
        )
        return 2
    _compile()
    figures = {name: import_module(f"bench.{name}").run() for name in wanted}
    if "--json" not in arguments:
        _print_table(figures)
    print(
        json.dumps(
            {
                area: [asdict(figure) | {"ok": figure.ok} for figure in found]
                for area, found in figures.items()
            }
        )
    )
    return 0 if all(figure.ok for found in figures.values() for figure in found) else 1


def _compile() -> None:
    """What pip does when it installs: commands are measured as users start them."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for folder in ("vmsonar", "archive", "inspect"):
        compileall.compile_dir(folder, quiet=1)


def _print_table(figures: dict[str, list[Figure]]) -> None:
    print(f"| {'area':<10} | {'figure':<58} | {'measured':>12} | {'bound':>12} | {'unit':<24} | |")
    print(f"|{'-' * 12}|{'-' * 60}|{'-' * 14}|{'-' * 14}|{'-' * 26}|---|")
    for area, found in figures.items():
        for figure in found:
            sign = "≥" if figure.at_least else "≤"
            bound = f"{sign} {figure.bound:,.6g}" if figure.bound is not None else ""
            verdict = "" if figure.bound is None else "ok" if figure.ok else "MISSED"
            value = f"{figure.value:,.4g}" if figure.value < 10_000 else f"{figure.value:,.0f}"
            print(
                f"| {area:<10} | {figure.name:<58} | {value:>12} | {bound:>12} | {figure.unit:<24} | {verdict} |"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
