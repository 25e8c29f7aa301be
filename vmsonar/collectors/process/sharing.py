"""What the members of a job share: pages of forks (copy-on-write) and shared memory, each counted once.

A fork has its parent's pages in its resident size until one of them writes. What is common stands in smaps_rollup,
which only the owner and root may read; without it there is an estimate, and bounds that hold.
"""

from collections.abc import Iterable

from vmsonar.collectors.process.footprint import PAGE, Figure, Footprint


def family(members: Iterable[Footprint]) -> list[Footprint]:
    """The members whose pages may be another's too: forks, and those they were forked from."""
    members = [member for member in members if member.twin is None]
    forks = {member for member in members if member.weighed[3]}
    parents = {fork.origin for fork in forks}
    return [member for member in members if member in forks or member.pid in parents]


def forks_figure(members: list[Footprint], departed: int, in_use: int | None) -> Figure:
    """Anonymous memory of all members; `in_use` is that of the whole machine."""
    kin = family(members)
    most = sum([member.weighed[2] for member in members])
    if len(kin) < 2:
        return Figure.exact(most)
    others = most - sum([member.weighed[2] for member in kin])
    if all(member.pss_anonymous is not None for member in kin):
        return _by_pss(kin, others, most, departed)
    return _estimated(kin, others, most if in_use is None else min(most, in_use))


def _by_pss(kin: list[Footprint], others: int, most: int, departed: int) -> Figure:
    """What Pss said, moved on by what each grew or shrank since; pages copied since are in the upper bound."""
    value = high = others
    for member in kin:
        grown = member.weighed[2] - member.pss_at[0]
        share = max(0, (member.pss_anonymous or 0) + grown)
        value += share
        high += share + copied_since(member)
    return Figure(value, value, max(value, min(most, high + departed)), "pss")


def copied_since(member: Footprint) -> int:
    """Bytes it can have copied since smaps_rollup was read: faults that its growth does not explain."""
    grown = max(0, member.weighed[2] - member.pss_at[0])
    return max(0, (member.faults - member.pss_at[2]) * PAGE - grown)


def _estimated(kin: list[Footprint], others: int, most: int) -> Figure:
    """Each fork's own pages, and what forks of one parent inherited once."""
    by_pid = {member.pid: member for member in kin}
    roots = others + sum([member.weighed[2] for member in kin if not member.weighed[3]])
    forks = [member for member in kin if member.weighed[3]]
    value = high = roots
    grown = 0
    #: By parent: pages that forks still have and the parent has no longer.
    left: dict[int, int] = {}
    for fork in forks:
        anonymous = fork.weighed[2]
        own = private_estimate(anonymous, fork.inherited, fork.faults)
        kept = min(anonymous - own, _changed_by(by_pid.get(fork.origin), fork))
        left[fork.origin] = max(left.get(fork.origin, 0), kept)
        high += own + kept
        # A page of shared memory takes a fault as well.
        value += private_estimate(anonymous, fork.inherited, fork.faults - fork.weighed[4] // PAGE)
        grown += max(0, anonymous - fork.anonymous_first)
    low = max(roots + grown, others + max([fork.weighed[2] for fork in forks]))
    low, high = min(low, most), min(high, most)
    return Figure(max(low, min(value + sum(left.values()), high)), low, max(low, high), "estimate")


def _changed_by(parent: Footprint | None, fork: Footprint) -> int:
    """Bytes that a parent gave up or wrote to since the fork was first seen; all of them if it is gone."""
    if parent is None:
        return fork.inherited
    change = parent.weighed[2] - fork.parent_anonymous
    return max(0, (parent.faults - fork.parent_faults) * PAGE - max(0, change)) + max(0, -change)


def private_estimate(anonymous: int, inherited: int, faults: int) -> int:
    """Bytes of its own: growth beyond what it inherited, and faults that growth does not explain."""
    grown = max(0, anonymous - inherited)
    copied = max(0, faults * PAGE - grown)
    return min(anonymous, grown + min(copied, inherited))


def segments_figure(held: list[tuple[int, int | None]], in_use: int | None) -> Figure:
    """Shared memory, from what each member maps and its share of that: one segment of all, or one of each?"""
    sizes = [size for size, _ in held if size]
    if len(sizes) < 2:
        return Figure.exact(sum(sizes))
    low, high = max(sizes), sum(sizes)
    shares = [share for size, share in held if size and share is not None]
    if len(shares) == len(sizes):
        value = min(high, max(low, sum(shares)))
        return Figure.exact(value, "pss")
    high = high if in_use is None else max(low, min(high, in_use))
    return Figure(low, low, high, "estimate")
