"""Memory of a job: anonymous memory of all members, plus shared memory once; pages shared since a fork count once.

A fork shares its parent's anonymous pages until one of the two writes, and both have them in their resident size. The
kernel knows (Pss_Anon of smaps_rollup, where we may read it); otherwise it is estimated: a copied page costs
its process a minor fault.
"""

from collections.abc import Iterable

from vmsonar.collectors.process_entry import Process

#: Below this, what forks share is not worth a closer look.
SMALL = 8 << 20

PAGE = 4096


def job_memory(members: Iterable[Process]) -> tuple[int | None, str | None]:
    """Bytes, and how copy-on-write sharing was resolved: sum, pss or estimate."""
    members = list(members)
    if not members:
        return 0, None
    shared = max([member.shared or 0 for member in members])
    forks = [member for member in members if is_candidate(member)]
    if not forks or len(members) == 1:
        return shared + sum([member.anonymous for member in members]), "sum"
    if all(member.pss_private is not None for member in _family(members, forks)):
        return shared + sum([_by_pss(member) for member in members]), "pss"
    return shared + _estimate(members, forks), "estimate"


def is_candidate(process: Process) -> bool:
    """Whether it may share much with the process it was forked from."""
    return process.is_forked_copy and process.anonymous >= SMALL


def family(members: Iterable[Process]) -> list[Process]:
    """The members whose anonymous memory may be shared: forks, and those they were forked from."""
    members = list(members)
    forks = [member for member in members if is_candidate(member)]
    return _family(members, forks) if forks and len(members) > 1 else []


def _family(members: list[Process], forks: list[Process]) -> list[Process]:
    parents = {fork.ppid for fork in forks}
    return [member for member in members if member.pid in parents or is_candidate(member)]


def _by_pss(member: Process) -> int:
    """What Pss said, moved on by what the process grew or shrank since."""
    if member.pss_private is None:
        return member.anonymous
    return max(0, member.pss_private + member.anonymous - member.pss_at)


def _estimate(members: list[Process], forks: list[Process]) -> int:
    """Each fork's own pages, and what it inherited once for all forks of one parent."""
    present = {member.pid for member in members}
    total = sum([member.anonymous for member in members if not is_candidate(member)])
    orphaned: dict[int, int] = {}
    for fork in forks:
        own = private_estimate(fork.anonymous, fork.inherited, fork.minor)
        total += own
        if fork.ppid not in present:
            orphaned[fork.ppid] = max(orphaned.get(fork.ppid, 0), fork.anonymous - own)
    return total + sum(orphaned.values())


def private_estimate(anonymous: int, inherited: int, minor_faults: int) -> int:
    """Bytes of its own: growth beyond what it inherited, and faults that growth does not explain."""
    grown = max(0, anonymous - inherited)
    copied = max(0, minor_faults * PAGE - grown)
    return min(anonymous, grown + min(copied, inherited))
