"""How much of a command line is recorded: nothing, the program, or all of it with secrets masked."""

from collections.abc import Callable

from vmsonar.collectors.process.interpreters import script_of

#: What one command line may take in an info row.
LIMIT = 4096

Policy = Callable[[list[str]], str | None]


def policy(name: str) -> Policy:
    """The policy that `command_line` names in the configuration."""
    return {"none": lambda _: None, "program": program_only, "full": full}[name]


def arguments(cmdline: bytes) -> list[str]:
    """The arguments in /proc/PID/cmdline; empty for a kernel thread or a zombie."""
    parts = cmdline.decode("utf-8", "backslashreplace").rstrip("\0").split("\0")
    return parts if parts != [""] else []


def program_only(args: list[str]) -> str | None:
    """The program's name, and for an interpreter the script or module that it runs."""
    if not args:
        return None
    # A process may write anything over its arguments: titles hold users, queries and worse after a blank.
    program = args[0].split(" ", 1)[0].rpartition("/")[2] or args[0].split(" ", 1)[0]
    script = script_of(program, args[1:])
    return _cut(program if script is None else f"{program} {script}")


def full(args: list[str]) -> str | None:
    """The whole command line, with what looks like a secret masked."""
    # Its patterns take half a megabyte that only this setting needs.
    from vmsonar.collectors.process.masking import masked

    return _cut(" ".join(masked(args, LIMIT))) if args else None


def _cut(text: str) -> str:
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
