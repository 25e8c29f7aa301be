"""Random workloads from the same building blocks: a seed gives the same plan every time."""

from dataclasses import dataclass, field
from random import Random

from tests.accuracy.workloads import Workload

#: Milliseconds of CPU time that one mixture may use, so that ten of them fit on two cores.
_BUDGET = 3500


@dataclass
class _Draw:
    """What is left to give away while a plan is drawn."""

    chance: Random
    budget: int = _BUDGET
    names: int = 0
    idle: list[str] = field(default_factory=list)

    def burn(self, most: int = 900) -> str:
        """Some CPU time: often very little, as most processes have."""
        wanted = int(min(self.chance.paretovariate(0.7) * 8, most))
        spent = min(wanted, self.budget)
        self.budget -= spent
        return f"burn {spent}" if spent else ""

    def pause(self, most: int = 4000) -> str:
        return f"sleep {self.chance.choice((0, 5, 40, 300, self.chance.randrange(most)))}"

    def name(self) -> str:
        self.names += 1
        return f"g{self.names}"


def mixture(seed: int) -> Workload:
    """A tree of processes with lanes, lives, groups and parents drawn by chance."""
    draw = _Draw(Random(seed))
    lanes = " ".join(_child(draw, 0) for _ in range(draw.chance.randint(2, 5)))
    trait = draw.chance.choice(("", "", "", "subreaper ", "ignore "))
    plan = f"job root {trait}{lanes} {draw.burn()} {_ending(draw)} sleep {draw.chance.randrange(200, 9000)}"
    return Workload(
        f"seed-{seed}",
        "drawn by chance",
        " ".join(plan.split()),
        idle=tuple(draw.idle),
        delay=draw.chance.uniform(0, 18),
    )


def _ending(draw: _Draw) -> str:
    """Waits for its children at once, late, or leaves them to others."""
    return draw.chance.choice(("wait", "wait", "wait", f"{draw.pause()} wait", ""))


def _child(draw: _Draw, depth: int) -> str:
    how = draw.chance.choices(
        ("fork", "spawn", "vfork", "double", "repeat", "idle"), (8, 4, 2, 2, 3, 1), k=1
    )[0]
    if how == "repeat":
        return _many(draw)
    if how == "idle":
        draw.idle.append(draw.name())
        return f"fork {{ group job {draw.idle[-1]} sleep {draw.chance.randrange(500, 9000)} }}"
    return f"{how} {{ {_body(draw, depth)} }} {draw.pause(600)}"


def _body(draw: _Draw, depth: int) -> str:
    words = [draw.chance.choice((f"group job {draw.name()}", f"session job {draw.name()}", ""))]
    for _ in range(draw.chance.randint(1, 3)):
        words += [draw.burn(), draw.pause()]
    if depth < 3:
        words += [_child(draw, depth + 1) for _ in range(draw.chance.choice((0, 0, 1, 1, 2)))]
    if draw.chance.random() < 0.15:
        words.append(f"write {draw.chance.randint(2, 24)}")
    if draw.chance.random() < 0.1:
        words += [f"group job {draw.name()}", draw.burn(), draw.pause()]
    return " ".join([*words, _ending(draw), draw.burn(200)])


def _many(draw: _Draw) -> str:
    """A row of short children, as scripts have them."""
    count = draw.chance.randint(5, 60)
    each = min(draw.chance.randint(1, 25), max(1, draw.budget // count))
    draw.budget -= count * each
    after = draw.chance.choice(("wait", "sleep 10"))
    return f"repeat {count} {{ fork {{ flicker {max(1, each // 2)} {each} }} {after} }}"
