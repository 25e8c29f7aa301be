"""Stand-ins for Slurm's programs: scripts that say what a test wrote, or misbehave."""

import stat
from pathlib import Path

FIELDS = ["JobIDRaw", "JobID", "JobName", "State", "User", "Account", "WCKey", "NodeList", "Start", "End",
          "TimelimitRaw", "ExitCode", "ReqTRES", "AllocTRES", "UserCPU"]  # fmt: skip
HELP = " ".join(FIELDS)

#: A job that runs, as sacct tells it.
JOB = {
    "JobIDRaw": "7", "JobID": "7", "JobName": "train", "State": "RUNNING", "User": "ann", "Account": "physics",
    "WCKey": "lhc", "Start": "1795033328", "End": "Unknown", "TimelimitRaw": "60", "ExitCode": "0:0",
    "ReqTRES": "billing=2,cpu=2,mem=400M,node=1", "AllocTRES": "billing=2,cpu=2,gres/gpu=1,mem=400M,node=1",
}  # fmt: skip

_SACCT = """#!/bin/sh
echo "sacct $*" >> {folder}/asked
for word in "$@"; do case $word in
  --helpformat) echo "{help}"; exit ;;
  --delimiter=*) mark=${{word#*=}} ;;
esac; done
exec {folder}/say "$mark"
"""
_SAY = """#!/usr/bin/python3 -S
import sys
mark = sys.argv[1]
for line in open({table!r}).read().split("\\x1e")[:-1]:
    sys.stdout.write("".join(field + mark for field in line.split("\\x1f")) + "\\n")
"""


class FakeSlurm:
    """A folder of programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.program("sacct", _SACCT.format(folder=folder, help=HELP))
        self.program("say", _SAY.format(table=str(folder / "table")))
        self.program("scontrol", "#!/bin/sh\necho 'ClusterName             = fake'\n")
        self.cluster("short|c[1-3]\n", "c[1-2]|idle|\nc3|down*+drain|\n")
        self.jobs([])

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def cluster(self, partitions: str, states: str) -> None:
        self.program(
            "sinfo", f"#!/bin/sh\ncase $* in *-O*) printf '{states}';; *) printf '{partitions}';; esac\n"
        )

    def jobs(self, rows: list[dict[str, str]]) -> None:
        """The table of sacct; fields that are not given are empty."""
        lines = ("\x1f".join(row.get(field, "") for field in FIELDS) + "\x1e" for row in rows)
        (self.folder / "table").write_text("".join(lines))

    @property
    def asked(self) -> list[str]:
        """How sacct was called for a table."""
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if "--helpformat" not in line]
