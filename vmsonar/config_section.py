"""What every section of the configuration has in common."""

import msgspec


class Section(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A mapping in the file: every key is optional, an unknown one is refused."""
