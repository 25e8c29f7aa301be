"""What became of a teardown, for people and programs."""

import msgspec
from vmsonar_archive.errors import Exit


class Saved(msgspec.Struct, kw_only=True):
    """Where everything is now."""

    #: Where bundles went in this run, without secrets.
    delivered: list[str] = []
    #: Bundles on this machine's disk that still have to be sent.
    waiting: list[str] = []
    #: Whether records were also forwarded: all of them, not all, or not configured.
    forwarded: bool | None = None
    #: What went wrong, a sentence each.
    troubles: list[str] = []
    #: Whether the archive itself was found damaged on the way.
    damaged: bool = False

    @property
    def exit_code(self) -> Exit:
        if self.waiting or self.troubles or self.forwarded is False:
            return Exit.CANNOT
        return Exit.NO if self.damaged else Exit.OK

    def add(self, part: "Saved | None") -> None:
        """Takes over what a part of the work did."""
        if part is not None:
            self.delivered += part.delivered
            self.troubles += part.troubles
            self.damaged |= part.damaged
