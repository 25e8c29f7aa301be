"""What every row has in common: absent equals null, and what is unknown is skipped."""

import msgspec


class Row(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One line of one kind within a sample.

    Fields may be added, never removed or retyped; each new one has a default.
    """
