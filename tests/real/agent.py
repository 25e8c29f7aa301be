"""Runs commands in a guest with a kernel of its own, over a serial line: neither a network nor a login is needed."""

import base64
import json
import socket
import subprocess
import time

LINE = "/dev/ttyS0"
#: The buffer of a terminal: a longer question stays unread.
MOST = 4095
#: What runs in the guest: a line of JSON asks for a command, a line answers with its output.
SCRIPT = f"""#!/usr/bin/python3
import base64, json, os, subprocess, tty
line = os.open("{LINE}", os.O_RDWR | os.O_NOCTTY)
tty.setraw(line)
asked_for = os.fdopen(os.dup(line), "rb", buffering=65536)
os.write(line, b"\\nready\\n")  # what came before may have been lost with the line's old mode

def answer(asked):
    try:
        done = subprocess.run(asked["command"], input=base64.b64decode(asked["input"]), capture_output=True,
                              timeout=asked["seconds"])
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return 124, b"", b"out of time"
    except OSError as error:
        return 127, b"", str(error).encode()

for text in asked_for:
    asked = json.loads(text)
    code, output, errors = answer(asked)
    said = [asked["id"], code, base64.b64encode(output).decode(), base64.b64encode(errors).decode()]
    data = json.dumps(said).encode() + b"\\n"
    while data:
        data = data[os.write(line, data):]
"""
#: Up early and until the very end; not a victim when memory is short.
UNIT = """[Unit]
Description=Runs what the tests ask for
DefaultDependencies=no
After=local-fs.target systemd-tmpfiles-setup.service
[Service]
ExecStart=/usr/local/sbin/test-agent
OOMScoreAdjust=-1000
OOMPolicy=continue
Environment=HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[Install]
WantedBy=sysinit.target
"""
FILES = {"usr/local/sbin/test-agent": SCRIPT, "etc/systemd/system/test-agent.service": UNIT}


class Agent:
    """The host's end of the line."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._asked, self._rest = line, 0, b""

    def close(self) -> None:
        self._line.close()

    def wait(self, seconds: float) -> None:
        """Returns when the guest listens."""
        deadline = time.monotonic() + seconds
        while self._answer(deadline) != b"ready":
            pass

    def run(self, command: list[str], given: bytes, seconds: float) -> subprocess.CompletedProcess[bytes]:
        """The command's end."""
        self._asked += 1
        question = {"id": self._asked, "command": command, "input": base64.b64encode(given).decode(),
                    "seconds": seconds}  # fmt: skip
        deadline = time.monotonic() + seconds
        asked = json.dumps(question).encode() + b"\n"
        if len(asked) > MOST:
            raise ValueError(f"{command[0]}: {len(asked)} bytes, the line takes {MOST}; ask for less at once")
        self._line.settimeout(seconds)
        self._line.sendall(asked)
        while True:
            number, code, output, errors = json.loads(self._answer(deadline))
            if number == self._asked:
                texts = base64.b64decode(output), base64.b64decode(errors)
                return subprocess.CompletedProcess(command, code, *texts)

    def _answer(self, deadline: float) -> bytes:
        while b"\n" not in self._rest:
            self._line.settimeout(max(0.1, deadline - time.monotonic()))
            part = self._line.recv(1 << 20)
            if not part:
                raise ConnectionError("the guest is off")
            self._rest += part
        answer, self._rest = self._rest.split(b"\n", 1)
        return answer
