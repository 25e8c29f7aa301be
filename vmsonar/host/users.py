"""Names of user ids (passwd(5)), without ever waiting for a directory server in the sampling path."""

import pwd
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from vmsonar.host.files import stamp_of


class Users:
    """Looks names up in the machine's passwd file, and elsewhere on a thread of its own."""

    def __init__(self, passwd: Path, ask_system: bool) -> None:
        self._passwd = passwd
        self._ask_system = ask_system
        self._stamp: tuple[int, int, int] | None = None
        self._local: dict[int, str] = {}
        self._asked: dict[int, str | None] = {}
        self._questions: SimpleQueue[int] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def name(self, uid: int) -> str | None:
        """The name, or None if it is unknown or still being looked up."""
        name = self._local.get(uid)
        if name is not None or not self._ask_system:
            return name
        if uid not in self._asked:
            self._asked[uid] = None
            self._ask(uid)
        return self._asked[uid]

    def refresh(self) -> None:
        """Reads the file again if it changed; what was not found is asked for again."""
        stamp = stamp_of(self._passwd)
        if stamp != self._stamp:
            self._local, self._stamp = {}, None
            with suppress(OSError):
                self._local, self._stamp = parse_passwd(self._passwd.read_bytes()), stamp
        self._asked = {uid: name for uid, name in self._asked.items() if name is not None}

    def _ask(self, uid: int) -> None:
        if self._thread is None:
            # A daemon thread: a directory server that hangs must not hold up the end of the program.
            self._thread = threading.Thread(target=self._answer, name="users", daemon=True)
            self._thread.start()
        self._questions.put(uid)

    def _answer(self) -> None:
        while True:
            uid = self._questions.get()
            with suppress(KeyError, OSError):
                self._asked[uid] = pwd.getpwuid(uid).pw_name


def parse_passwd(text: bytes) -> dict[int, str]:
    """Names by id; of several names with one id the first counts, as getpwuid(3) has it."""
    names: dict[int, str] = {}
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        fields = line.split(":")
        if len(fields) >= 3 and fields[2].isdecimal():
            names.setdefault(int(fields[2]), fields[0])
    return names
