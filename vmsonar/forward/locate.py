"""Finds where to go on: by the id of the last acknowledged record, because its number alone may have been used twice.

A record can be read and sent before it is on the disk. If the power then fails, the archive lacks it, and the next
run of the recorder gives its number to another record.
"""

from vmsonar.forward.cursor import Mark
from vmsonar.forward.tail import Tail


def locate(tail: Tail, mark: Mark) -> int | None:
    """The number after which everything is unsent; None when the archive cannot have come after the mark."""
    if not mark.run:
        return mark.seq
    names = tail.names_up_to(mark.seq)
    if not names:
        return mark.seq
    for name in reversed(names):
        found = 0
        for stamp in tail.stamps(name):
            if stamp.run == mark.run and stamp.seq <= mark.seq:
                found = stamp.seq
        if found:
            # The records after it, whatever their numbers, were written later.
            return found
    return None
