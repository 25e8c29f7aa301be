"""How much of a container's command line is passed on, as the command_line setting allows."""

from vmsonar.collectors.process_command import policy


def shown_command(arguments: list[str], setting: str) -> str | None:
    """The command as it may be recorded."""
    return policy(setting)(arguments) if arguments and arguments[0] else None
