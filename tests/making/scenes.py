"""Workloads whose truth is known, each on a machine of eight cores and 32 GiB for half an hour."""

from collections.abc import Callable
from datetime import timedelta

from vmsonar_archive.records import EventRow

from tests.making.machines import GIB, MIB, START, Box, Load, Machine, box_id, gpu_id

SECONDS = 1800
CORES = 8


def serial() -> Machine:
    return Machine(loads=[Load(100, "python3 train.py", begin=100, cores=1.0, memory=20 * GIB)])


def healthy() -> Machine:
    """All cores busy, memory well used, nobody waits."""
    return Machine(
        loads=[Load(100, "./simulate", begin=0, cores=7.6, threads=8, memory=20 * GIB)],
        pressure={"cpu": 0.02},
        runnable=8,
    )


def crowded() -> Machine:
    """Thirty-two busy threads on eight cores."""
    return Machine(
        loads=[Load(100, "./solve -j 32", begin=0, cores=7.9, threads=32, memory=20 * GIB)],
        pressure={"cpu": 0.9},
        runnable=32,
    )


def memory_hog() -> Machine:
    """Memory fills up and the machine thrashes."""
    return Machine(
        loads=[
            Load(
                100, "python3 join.py", begin=0, cores=4, memory=lambda s: min(30.5, s / 40) * GIB, faults=500
            )
        ],
        pressure={"memory": 0.4},
        swap=900.0,
    )


def idle_gpu() -> Machine:
    """A job holds a GPU and never uses it."""
    gpu = gpu_id(0)
    load = Load(
        100, "python3 fit.py", begin=0, cores=7.5, memory=20 * GIB, gpu={gpu: 0.0}, gpu_memory=30 * GIB
    )
    return Machine(loads=[load], gpus=(gpu,))


def out_of_memory() -> Machine:
    """A container is killed at its limit after 1,200 s."""
    box = Box(box_id(7), "trainer", limit=4 * GIB, oom_at=1200)
    load = Load(100, "python3 fit.py", begin=0, end=1200, cores=7, container=box.container_id,
                memory=lambda s: min(3.99, s / 300) * GIB)  # fmt: skip
    other = Load(300, "./simulate", begin=0, cores=2, memory=18 * GIB)
    return Machine(loads=[load, other], boxes=[box])


def own_limit() -> Machine:
    """A job is killed at the limit of a control group of its own, and most of the machine's memory is free."""

    def group(second: float) -> dict[str, int]:
        met = int(second >= 1200)
        return {"memory_limit": 2 * GIB, "oom_kills": met, "memory_max_events": 9 * met}

    load = Load(100, "python3 fit.py", begin=0, end=1205, cores=5, memory=2 * GIB, group=group)
    ended = EventRow(event_type="exit", subject="job", pgid=100, pid=100, start_ticks=load.start_ticks,
                     exit_signal=9, exit_source="accounts", happened=START + timedelta(seconds=1198))  # fmt: skip
    other = Load(300, "./simulate", begin=0, cores=2, memory=12 * GIB)
    return Machine(loads=[load, other], kills=(1198,), events=[(1200, ended)])


def limited_container_thrashes() -> Machine:
    """A container reads its own pages back all the time, and most of the machine's memory is free."""
    box = Box(box_id(7), "trainer", limit=4 * GIB)
    load = Load(
        100, "python3 fit.py", begin=0, cores=3, memory=3.9 * GIB, faults=500, container=box.container_id
    )
    other = Load(300, "./simulate", begin=0, cores=2, memory=12 * GIB)
    return Machine(loads=[load, other], boxes=[box], pressure={"memory": 0.4})


def just_full() -> Machine:
    """Three tasks are ready for two cores at every look, and pressure says that none waits."""
    load = Load(100, "./simulate", begin=0, cores=1.95, memory=20 * GIB)
    return Machine(loads=[load], cpus=2, runnable=4)


def churn() -> Machine:
    """Shells start two thousand processes a second, each for 3 ms."""
    return Machine(
        loads=[Load(100, "bash tidy.sh", begin=0, cores=6, memory=20 * GIB, births=2000)], forks=2000.0
    )


def polling() -> Machine:
    """Beside healthy work a shell asks four times a second; as many starts, and they cost nobody anything."""
    machine = healthy()
    machine.loads.append(Load(200, "bash watch.sh", begin=0, cores=0.01, births=4))
    return machine


def build() -> Machine:
    """Every process is counted, and each works for 15 ms on average: what a build starts is worth its start."""
    return Machine(loads=[Load(100, "make", begin=0, cores=6, memory=20 * GIB, births=400)], forks=40.0)


def short_lived() -> Machine:
    """A shell whose children end before anybody looks."""
    load = Load(100, "bash tidy.sh", begin=0, cores=1.8, memory=20 * GIB, unseen=0.9)
    return Machine(loads=[load], forks=400.0, cpus=2)


def io_bound() -> Machine:
    """One job waits for the disk."""
    return Machine(
        loads=[Load(100, "./scan", begin=0, cores=2.5, memory=20 * GIB, read=200 * MIB, write=50 * MIB)],
        pressure={"io": 0.6},
    )


def imbalanced() -> Machine:
    """One of eight workers does nearly everything."""
    load = Load(100, "./rank", begin=0, cores=4, memory=20 * GIB, workers=(93.0, *[1.0] * 7))
    return Machine(loads=[load])


def throttled() -> Machine:
    """A container has a quota of two cores and wants more."""
    box = Box(box_id(9), "api", quota=2.0, throttled=0.6)
    load = Load(100, "gunicorn app", begin=0, cores=2.0, memory=20 * GIB, container=box.container_id)
    return Machine(loads=[load, Load(200, "./simulate", begin=0, cores=5, memory=1 * GIB)], boxes=[box])


def hogging() -> Machine:
    """One job keeps another waiting."""
    greedy = Load(100, "./solve", begin=0, cores=5.8, threads=8, memory=18 * GIB)
    other = Load(200, "./serve", user="bert", begin=0, cores=2.0, memory=1 * GIB)
    return Machine(loads=[greedy, other], pressure={"cpu": 0.6}, runnable=11)


def idle_machine() -> Machine:
    return Machine(loads=[Load(100, "sshd", begin=0, cores=0.01)])


#: Each workload with exactly the rules that must fire.
SCENES: dict[str, tuple[Callable[[], Machine], set[str]]] = {
    "serial": (serial, {"serial", "cores_far_from_used"}),
    "healthy": (healthy, set()),
    "crowded": (crowded, {"more_threads_than_cores", "cores_saturated"}),
    "memory_hog": (memory_hog, {"job_thrashing", "thrashing", "memory_nearly_full"}),
    "idle_gpu": (idle_gpu, {"gpu_reserved_idle"}),
    "out_of_memory": (out_of_memory, {"container_out_of_memory", "job_out_of_memory"}),
    "own_limit": (own_limit, {"job_out_of_memory"}),
    "limited_container_thrashes": (
        limited_container_thrashes, {"job_thrashing_at_limit", "container_limit_near"},
    ),
    "just_full": (just_full, set()),
    "churn": (churn, {"churn", "fork_churn"}),
    "polling": (polling, set()),
    "build": (build, set()),
    "short_lived": (short_lived, {"short_lived", "fork_churn"}),
    "io_bound": (io_bound, {"io_bound", "disk_saturated", "cores_far_from_used"}),
    "imbalanced": (imbalanced, {"imbalanced"}),
    "throttled": (throttled, {"throttled"}),
    "hogging": (hogging, {"hogging", "cores_saturated"}),
    "idle_machine": (idle_machine, {"machine_idle", "memory_far_from_full"}),
}  # fmt: skip
