"""`vmsonar slurm`: what Slurm tells, asked once."""

from typing import Annotated

from vmsonar_archive.system.errors import VmsonarError

from vmsonar.commands.options import ConfigOption, JsonOption, option
from vmsonar.commands.output import print_json, print_table, say


def slurm_command(
    folder: Annotated[str | None, option("DIR", "Where sacct, sinfo and scontrol are.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Asks Slurm once, as the recorder would with `collectors.slurm: auto`, and shows what it tells.

    Example: vmsonar slurm --json | jq '.batch_job[] | select(.job_state == "RUNNING")'
    """
    import msgspec

    from vmsonar.collectors.slurm.wire import Asked, BatchJobs, ClusterState
    from vmsonar.companion.programs import Programs
    from vmsonar.companion.slurm import Questions
    from vmsonar.config.file import load_config

    settings = load_config(config).slurm
    if folder is not None:
        settings = msgspec.structs.replace(settings, folder=folder)
    jobs, cluster, asked = [], [], []
    for message in Questions(Programs(settings), settings).ask():
        if isinstance(message, BatchJobs):
            jobs += message.rows
        elif isinstance(message, ClusterState):
            cluster = message.rows
        elif isinstance(message, Asked):
            asked.append(message)
    wrong = [f"{each.program}: {each.detail}" for each in asked if each.state != "ok"]
    if json:
        print_json({"batch_job": jobs, "cluster": cluster, "wrong": wrong})
    else:
        titles = ("job", "step", "state", "user", "account", "nodes", "given")
        rows = [
            (job.batch_job, job.batch_step, job.job_state, job.user_name, job.account, job.node_names,
             job.allocated_resources)
            for job in jobs
        ]  # fmt: skip
        print_table(titles, [[cell or "" for cell in row] for row in rows])
        for each in cluster:
            of = f"partition {each.partition_name}" if each.partition_name else each.node_states
            say(f"{each.node_names or 'no nodes'}: {of}")
    if wrong:
        raise VmsonarError(f"Slurm does not tell everything: {'; '.join(wrong)}")
