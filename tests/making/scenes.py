"""Workloads whose truth is known, each on a machine of eight cores and 32 GiB for half an hour."""

from collections.abc import Callable

from tests.making.machines import GIB, MIB, Box, Load, Machine, box_id, gpu_id

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


def churn() -> Machine:
    """Shells start two thousand processes a second, each for 3 ms."""
    return Machine(
        loads=[Load(100, "bash tidy.sh", begin=0, cores=6, memory=20 * GIB, births=2000)], forks=2000.0
    )


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
    "churn": (churn, {"churn", "fork_churn"}),
    "build": (build, set()),
    "short_lived": (short_lived, {"short_lived", "fork_churn"}),
    "io_bound": (io_bound, {"io_bound", "disk_saturated", "cores_far_from_used"}),
    "imbalanced": (imbalanced, {"imbalanced"}),
    "throttled": (throttled, {"throttled"}),
    "hogging": (hogging, {"hogging", "cores_saturated"}),
    "idle_machine": (idle_machine, {"machine_idle", "memory_far_from_full"}),
}
