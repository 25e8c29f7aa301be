"""Writes a man page for vmsonar and for each of its commands, from the help that `--help` shows: make man."""

import sys
from pathlib import Path

import typer

from vmsonar import __version__
from vmsonar.cli import COMMANDS, command_line


def page(name: str, summary: str, text: str) -> str:
    """The help as a man page: the text stays as it is set, because options stand in columns."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    body = "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in safe.splitlines())
    head = f'.TH {name.upper()} 1 "" "vmsonar {__version__}" "vmsonar"\n.SH NAME\n{name} \\- {summary}'
    others = ", ".join(f"vmsonar\\-{other}(1)" for other in COMMANDS if f"vmsonar-{other}" != name)
    return f"{head}\n.SH DESCRIPTION\n.nf\n{body}\n.fi\n.SH SEE ALSO\n{others}\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    whole = command_line()
    found = {}
    with typer.Context(whole, info_name="vmsonar") as context:
        found["vmsonar.1"] = page(
            "vmsonar", "records what happens on a VM and explains it", whole.get_help(context)
        )
        for name, (_, summary) in COMMANDS.items():
            command = whole.get_command(context, name)
            with typer.Context(command, info_name=name, parent=context) as inner:
                found[f"vmsonar-{name}.1"] = page(
                    f"vmsonar-{name}", summary.rstrip("."), command.get_help(inner)
                )
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text)
