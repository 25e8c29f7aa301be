"""Memory of a job: anonymous memory of all members, plus shared memory once; pages shared since a fork count once.

A fork shares its parent's anonymous pages until one of the two writes, and both have them in their resident size. The
kernel knows (Pss_Anon of smaps_rollup, where we may read it); otherwise it is estimated: a copied page costs
its process a minor fault.
"""

from vmsonar.collectors.process_entry import Process

#: Below this, what forks share is not worth a closer look.
SMALL = 8 << 20

PAGE = 4096


def is_candidate(process: Process) -> bool:
    """Whether it may share much with the process it was forked from."""
    return process.is_forked_copy and process.anonymous >= SMALL


def resolve_sharing(members: set[Process], forks: set[Process]) -> tuple[int, str]:
    """Anonymous bytes of members some of whom are large forks, and the source: pss or estimate."""
    if all(member.pss_private is not None for member in family(members, forks)):
        return sum([_by_pss(member) for member in members]), "pss"
    return _estimate(members, forks), "estimate"


def family(members: set[Process], forks: set[Process]) -> list[Process]:
    """The members whose anonymous memory may be shared: forks, and those they were forked from."""
    parents = {fork.ppid for fork in forks}
    return [member for member in members if member.pid in parents or member in forks]


def _by_pss(member: Process) -> int:
    """What Pss said, moved on by what the process grew or shrank since."""
    if member.pss_private is None:
        return member.anonymous
    return max(0, member.pss_private + member.anonymous - member.pss_at)


def _estimate(members: set[Process], forks: set[Process]) -> int:
    """Each fork's own pages, and what it inherited once for all forks of one parent."""
    present = {member.pid for member in members}
    total = sum([member.anonymous for member in members if member not in forks])
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
