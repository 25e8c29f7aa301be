"""The workloads, each with what makes it hard: plans for `actor.c`, and real shells, builds and `su`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.accuracy.truth import accounts_in

NOBODY = 65534
MIB = 2**20


@dataclass(frozen=True)
class Workload:
    """What runs, as whom, when, and what is known of it beforehand."""

    name: str
    about: str
    #: Words for the actor; `{files}` is the workload's folder on a real file system, `{user}` and `{another}` are
    #: user ids that nobody else has.
    plan: str
    #: Names of jobs that do nothing, and must have nothing.
    idle: tuple[str, ...] = ()
    #: Highest memory of a job in bytes: what it touched, shared pages once.
    peaks: dict[str, int] = field(default_factory=dict)
    #: Seconds after the start of the stage.
    delay: float = 0.0
    #: Hogs give way, so that a step of 4 s takes about as long beside them.
    nice: int = 0
    as_root: bool = False
    as_recorder: bool = False
    #: Whether bytes read and written are known; a compiler's are not.
    has_io: bool = True
    #: Writes what the plan needs into the folder; returns accounts that it names.
    prepare: Callable[[Path], str] | None = None

    def accounts(self, prepared: str) -> list[str]:
        return accounts_in(f"{self.plan} {prepared}")


def _lane(lane: str, steps: int, milliseconds: tuple[int, int]) -> str:
    own, child = milliseconds
    each = "spawn {{ group job {lane}{step} fork {{ burn {child} }} burn {own} wait last 4000 }} wait"
    return " ".join(each.format(lane=lane, step=step, own=own, child=child) for step in range(steps))


CI_RUNNER = f"job runner fork {{ {_lane('a', 5, (300, 600))} }} fork {{ {_lane('b', 5, (900, 100))} }} wait"

SLEEPER = """job shell
 fork { group job early sleep 7000 }
 fork { group job late sleep 23000 }
 fork { group job burner last 1500 burn 3000 last 7000 }
 fork { group job writer sleep 2500 write 200 last 7000 }
 sleep 9000
 repeat 3 { fork { burn 250 write 10 } sleep 900 } wait sleep 500"""

THOUSAND = "job parent repeat 1000 { fork { flicker 5 20 } wait } sleep 500"

IGNORED = """job parent ignore
 fork { group job long burn 1300 last 6000 burn 300 }
 fork { group job short burn 400 }
 fork { burn 700 last 2500 }
 repeat 10 { fork { burn 40 } sleep 200 } sleep 8000 burn 100 sleep 9000"""

SETPGID = """job home
 fork { burn 700 sleep 1200 group job moved burn 900 sleep 1500 }
 fork { group job target sleep 3000 fork { burn 300 sleep 300 } wait sleep 9000 }
 fork { sleep 1500 burn 300 join target job guest burn 800 sleep 600 burn 200 }
 wait sleep 500"""

DOUBLE = """job root
 double { group job daemon burn 900 last 5000 burn 200 }
 double { session job session burn 500 }
 repeat 8 { double { burn 60 } sleep 150 }
 double { burn 400 sleep 1500 burn 100 }
 sleep 14000"""

VFORK = """job root repeat 30 { vfork { burn 40 } wait }
 vfork { group job one burn 800 sleep 700 } vfork { group job two burn 200 last 4000 burn 500 } wait
 vfork { repeat 10 { vfork { burn 20 } wait } } wait sleep 500"""

BOMB = """job bomb repeat 5 { fork { repeat 10 { fork { repeat 9 { fork { sleep 400 burn 3 } } burn 3 wait } } wait } }
 wait sleep 12000"""

ZOMBIES = """job parent
 fork { group job ghost burn 900 }
 fork { group job spectre burn 300 fork { burn 300 } wait }
 repeat 5 { fork { burn 60 } } sleep 6500 wait sleep 2000
 fork { group job left burn 500 } sleep 6000"""

REUSE = """job root
 fork { group uid {user} job first burn 500 sleep 300 } wait
 reuse { group uid {user} job second burn 800 sleep 1500 } wait
 reuse { group uid {user} job third burn 30 } wait
 reuse { group uid {user} job fourth burn 300 last 3000 } wait sleep 3000"""

SUBREAPER = """job manager subreaper
 fork { double { group job adopted burn 900 last 4000 burn 100 } burn 50 }
 fork { fork { group job grandchild burn 600 } fork { burn 200 sleep 800 burn 100 } exit 0 }
 wait sleep 6000"""


def _births(interval: int, count: int, tag: str) -> str:
    """Jobs that are born, or die, within milliseconds of a tick, on either side of it."""
    words = []
    for step in range(count):
        delta = (-12, -4, 0, 3, 8)[step % 5]
        words.append(
            f"tick {interval} {delta} fork {{ group job {tag}{step} burn {15 + 120 * (step % 3)} }} fork {{ burn 25 }}"
            f" fork {{ group job {tag}x{step} tick {interval} {-3 + step} burn 8 }}"
        )
    return " ".join(words)


IN_THE_TICK = f"job root {_births(1000, 5, 's')} wait {_births(10000, 2, 't')} wait sleep 500"

THREADS = """job root
 fork { group job pool threads 4 300 last 4000 threads 2 400 }
 fork { group job headless ghost burn 900 last 5000 burn 200 }
 wait sleep 500"""

SHORT_IO = """job root
 repeat 6 { fork { write 6 } wait sleep 150 }
 fork { group job short write 12 } wait
 fork { group job long write 30 sleep 2500 write 30 }
 fork { group job reader read 48 sleep 1500 }
 fork { group job beside sleep 4200 }
 wait sleep 800"""

SETUID = """job root
 fork { group uid {user} job own burn 800 sleep 800 }
 fork { group job mixed burn 300 fork { uid {another} job inside burn 700 sleep 700 } wait }
 fork { group job switched command { sh {files}/su.sh } }
 wait sleep 800"""

#: `run` enters the control group first: what it takes to become the actor is the job's own.
_SHELL = """set -m
run() { echo 0 >"$ACTOR_GROUPS/$1/cgroup.procs"; exec "$ACTOR" "job $1 $2"; }
for i in 1 2 3 4 5 6 7 8 9 10; do (run quick$i "burn 40"); done
(run fore "burn 700 sleep 900 burn 100")
run back1 "burn 900 sleep 2000" &
run back2 "sleep 1800 burn 300" &
run pipe "burn 300" | run piped "burn 150 sleep 600"
run idle "sleep 4000" &
wait
for i in 1 2 3; do (run later$i "burn 20 sleep 400"); done
"""


def _shell_script(folder: Path) -> str:
    (folder / "script.sh").write_text(_SHELL)
    names = ["fore", "back1", "back2", "pipe", "piped", "idle"]
    names += [f"quick{number}" for number in range(1, 11)] + [f"later{number}" for number in range(1, 4)]
    return " ".join(f"job {name}" for name in names)


_MODULE = """#include <stdio.h>
struct part{n} {{ int a[64]; double b; }};
static int work{n}(struct part{n} *p, int k)
{{ for (int i = 0; i < 64; i++) p->a[i] = k * i ^ {n}; return p->a[k % 64]; }}
int entry{n}(int k)
{{ struct part{n} p; int s = 0; for (int i = 0; i < k; i++) s += work{n}(&p, i); printf("%d\\n", s); return s; }}
"""


def _c_project(folder: Path) -> str:
    numbers = range(60)
    for number in numbers:
        (folder / f"m{number}.c").write_text(_MODULE.format(n=number))
    calls = "".join(f"extern int entry{n}(int);" for n in numbers)
    (folder / "main.c").write_text(f"{calls} int main(void) {{ return entry0(3) + entry59(2); }}\n")
    objects = " ".join([f"m{number}.o" for number in numbers] + ["main.o"])
    (folder / "Makefile").write_text(f"app: {objects}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O2 -c -o $@ $<\n")
    return ""


def _su_script(folder: Path) -> str:
    inner = "job inner burn 500 sleep 700"
    (folder / "su.sh").write_text(f"""exec su -s /bin/sh nobody -c "$ACTOR '{inner}'"\n""")
    return inner


PREFORK = """job server touch 200 repeat 4 { fork { sleep 9000 again 100 sleep 28000 } } wait"""
BURST = "job burst fork { sleep 2300 touch 3072 sleep 500 free sleep 20000 } wait"
BURST_AND_END = "job burst sleep 1000 fork { group job gone sleep 1300 touch 1024 sleep 500 } wait sleep 9000"

WORKLOADS: tuple[Workload, ...] = (
    Workload("ci-runner", "steps of 4 s in groups of their own, two lanes at once", CI_RUNNER),
    Workload("sleeper", "`sleep` beside siblings that burn CPU, write 200 MB and end with it", SLEEPER,
             idle=("early", "late")),
    Workload("make", "`make -j2` of 60 C files", "job make command { make -s -j2 -C {files} }", has_io=False,
             prepare=_c_project, delay=28),
    Workload("thousand", "1,000 children of 5 to 20 ms, one after the other", THOUSAND, nice=10),
    Workload("job-control", "`bash -m`: short and long commands, background, a pipeline",
             "job shell command { bash {files}/script.sh }", prepare=_shell_script, idle=("idle",), delay=2),
    Workload("ignored-sigchld", "a parent that ignores SIGCHLD: the kernel adds its children's time to nobody", IGNORED,
             delay=1),
    Workload("setpgid", "processes that change their group in mid-life", SETPGID, delay=5),
    Workload("double-fork", "daemons whose parent ends at once, adopted by process 1", DOUBLE, delay=9),
    Workload("vfork", "vfork and exec, also nested", VFORK, delay=18),
    Workload("fork-bomb", "500 processes at once, which end by themselves", BOMB, delay=21),
    Workload("zombies", "ended children that nobody waits for during seconds", ZOMBIES, delay=3),
    Workload("pid-reuse", "process ids used again at once (clone3 with set_tid)", REUSE, as_root=True, delay=14),
    Workload("subreaper", "orphans adopted by an ancestor", SUBREAPER, delay=12),
    Workload("in-the-tick", "jobs born or ended within milliseconds of a sample", IN_THE_TICK),
    Workload("threads", "thread pools, and a process whose main thread ended", THREADS, delay=24),
    Workload("short-io", "known bytes by short and long writers and a reader", SHORT_IO, idle=("beside",), delay=16),
    Workload("own-io", "the same by the recorder's own user where it is not root", SHORT_IO, idle=("beside",),
             as_recorder=True, delay=25),
    Workload("setuid", "children of another user: in their own group, in the parent's, and by `su`", SETUID,
             as_root=True, has_io=False, prepare=_su_script, delay=20),
    Workload("memory-plain", "500 MiB for 12 s", "job plain touch 500 sleep 12000", peaks={"plain": 500 * MIB},
             delay=6),
    Workload("memory-prefork", "200 MiB, four forks, each writes 100 MiB of it later and sleeps", PREFORK,
             peaks={"server": 600 * MIB}),
    Workload("memory-burst", "3 GiB for half a second in a process that lives on", BURST,
             peaks={"burst": 3072 * MIB}, delay=11),
    Workload("memory-burst-gone", "1 GiB for half a second in a process that then ends", BURST_AND_END,
             peaks={"gone": 1024 * MIB}, delay=22),
    Workload("memory-shm-own", "four processes with 100 MiB of shared memory each of its own",
             "job four repeat 4 { fork { shm 100 sleep 12000 } } wait", peaks={"four": 400 * MIB}, delay=19),
    Workload("memory-shm-one", "four processes that use one segment of 200 MiB",
             "job four shm 200 repeat 4 { fork { again 200 sleep 12000 } } wait", peaks={"four": 200 * MIB},
             delay=20),
    Workload("memory-hugetlb", "64 MiB of huge pages", "job huge huge 64 sleep 12000", peaks={"huge": 64 * MIB},
             delay=24),
    Workload("memory-headless", "100 MiB of a process whose main thread ended",
             "job headless touch 100 ghost sleep 13000", peaks={"headless": 100 * MIB}, delay=15),
    Workload("memory-clone-vm", "150 MiB of two processes that are one address space",
             "job pair touch 150 clonevm { sleep 12500 } sleep 12000 wait", peaks={"pair": 150 * MIB},
             delay=25),
)  # fmt: skip

#: Competes with all of the others for both cores.
NEIGHBOUR = Workload(
    "neighbour",
    "burns for 9 s of CPU time beside all others",
    "job hog fork { burn 4500 } burn 4500 wait",
    nice=15,
)
EVERY: tuple[Workload, ...] = (*WORKLOADS, NEIGHBOUR)
