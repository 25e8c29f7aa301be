"""`vmsonar sysinfo`: what the machine is."""

from vmsonar.clock import Clock
from vmsonar.collectors.registry import make_collectors
from vmsonar.collectors.setup import setup_for
from vmsonar.commands.options import ConfigOption, JsonOption
from vmsonar.commands.output import print_json
from vmsonar.config_file import load_config
from vmsonar.identity import node_identity
from vmsonar.sysinfo import gather


def command(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Prints one sysinfo record as JSON: hardware, system, cloud, what can be seen, the configuration.

    Example: vmsonar sysinfo | jq '.cpus, .memory_total'
    """
    settings = load_config(config)
    collectors = make_collectors(setup_for(settings, machine_id=node_identity(settings.host).machine_id))
    print_json(gather(settings.host, settings, collectors, Clock()))
    for collector in collectors:
        collector.close()
