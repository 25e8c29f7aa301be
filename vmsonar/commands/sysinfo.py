"""`vmsonar sysinfo`: what the machine is."""

from vmsonar.commands.options import ConfigOption, JsonOption
from vmsonar.commands.output import print_json
from vmsonar.config.file import load_config
from vmsonar.daemon.once import describe_machine


def command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Prints one sysinfo record as JSON: hardware, system, cloud, what can be seen, the configuration.

    Example: vmsonar sysinfo | jq '.cpus, .memory_total'
    """
    print_json(describe_machine(load_config(config)))
