"""Rows about batch jobs and their cluster, as the batch system itself tells them (sacct(1), sinfo(1))."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Ident,
    Identifier,
    Row,
    Seconds,
    Sensitivity,
    Text,
    Time,
    about,
)


class BatchJobRow(Row, kw_only=True):
    """A batch job or one of its steps; told again when something changed, and in each hour while it is not over."""

    batch_job: Annotated[Identifier, about("number of the job; JobIDRaw of sacct")]
    batch_step: Annotated[
        Text | None, about("batch, extern, interactive or a number; null in the row of the job itself")
    ] = None
    cluster_name: Annotated[Text | None, about("name of the cluster", Sensitivity.HOST)] = None
    job_name: Annotated[Text | None, about("name of the job or step", Sensitivity.COMMAND)] = None
    job_state: Annotated[
        Choice | None, about("PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, …")
    ] = None
    array_job: Annotated[Identifier | None, about("number of the array it is a task of")] = None
    array_task: Annotated[Ident | None, about("its number in that array")] = None
    het_job: Annotated[Identifier | None, about("number of the heterogeneous job it is a part of")] = None
    het_offset: Annotated[Ident | None, about("its place in that job")] = None
    user_name: Annotated[Text | None, about("who submitted it", Sensitivity.USER)] = None
    account: Annotated[Text | None, about("account that is charged", Sensitivity.LABEL)] = None
    project: Annotated[Text | None, about("workload characterization key (WCKey)", Sensitivity.LABEL)] = None
    qos: Annotated[Text | None, about("quality of service", Sensitivity.LABEL)] = None
    partition_name: Annotated[Text | None, about("partition", Sensitivity.LABEL)] = None
    reservation: Annotated[Text | None, about("reservation", Sensitivity.LABEL)] = None
    node_names: Annotated[Text | None, about("nodes it has, as ranges", Sensitivity.HOST)] = None
    priority: Annotated[Count | None, about("priority")] = None
    distribution: Annotated[Text | None, about("how tasks are laid out over nodes")] = None
    submit_time: Annotated[Time | None, about("when it was submitted")] = None
    start_time: Annotated[Time | None, about("when it started")] = None
    end_time: Annotated[Time | None, about("when it ended")] = None
    suspended_time: Annotated[Seconds | None, about("how long it was suspended")] = None
    elapsed_time: Annotated[Seconds | None, about("how long it has run")] = None
    time_limit: Annotated[Seconds | None, about("how long it may run; null without a limit")] = None
    exit_code: Annotated[Ident | None, about("exit code")] = None
    exit_signal: Annotated[Ident | None, about("signal that ended it")] = None
    requested_cpus: Annotated[Count | None, about("CPUs asked for")] = None
    requested_nodes: Annotated[Count | None, about("nodes asked for")] = None
    requested_memory: Annotated[Bytes | None, about("memory asked for, over all nodes")] = None
    requested_gpus: Annotated[Count | None, about("GPUs asked for; gres/gpu of ReqTRES")] = None
    requested_resources: Annotated[Text | None, about("all that was asked for; ReqTRES")] = None
    allocated_cpus: Annotated[Count | None, about("CPUs given")] = None
    allocated_nodes: Annotated[Count | None, about("nodes given")] = None
    allocated_memory: Annotated[Bytes | None, about("memory given, over all nodes")] = None
    allocated_gpus: Annotated[Count | None, about("GPUs given; gres/gpu of AllocTRES")] = None
    allocated_resources: Annotated[Text | None, about("all that was given; AllocTRES")] = None
    tasks: Annotated[Count | None, about("tasks of the step")] = None
    user_time: Annotated[Seconds | None, about("CPU time in user mode, as Slurm counted it")] = None
    system_time: Annotated[Seconds | None, about("CPU time in the kernel, as Slurm counted it")] = None
    mean_cpu_time: Annotated[Seconds | None, about("CPU time of a task, mean; AveCPU")] = None
    least_cpu_time: Annotated[Seconds | None, about("CPU time of a task, least; MinCPU")] = None
    memory_peak: Annotated[
        Bytes | None, about("resident memory of a task, highest that Slurm sampled; MaxRSS")
    ] = None
    mean_memory: Annotated[Bytes | None, about("resident memory of a task, mean; AveRSS")] = None
    virtual_peak: Annotated[Bytes | None, about("address space of a task, highest; MaxVMSize")] = None
    mean_virtual: Annotated[Bytes | None, about("address space of a task, mean; AveVMSize")] = None
    mean_read_bytes: Annotated[Bytes | None, about("read by a task, mean; AveDiskRead")] = None
    mean_write_bytes: Annotated[Bytes | None, about("written by a task, mean; AveDiskWrite")] = None


class ClusterRow(Row, kw_only=True):
    """Nodes of a partition, or nodes that are in one state; told when something changed, and in each hour."""

    cluster_name: Annotated[Text | None, about("name of the cluster", Sensitivity.HOST)] = None
    partition_name: Annotated[
        Text | None, about("partition whose nodes these are; null in rows of states", Sensitivity.LABEL)
    ] = None
    node_names: Annotated[Text | None, about("nodes, as ranges such as c[1-3,5]", Sensitivity.HOST)] = None
    node_states: Annotated[
        Text | None, about("their state with its flags, such as IDLE+DRAIN; null in rows of partitions")
    ] = None
