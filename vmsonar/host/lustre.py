"""How a Lustre client names jobs to the servers, which book requests under that name (manual: "Lustre Jobstats")."""

import os
import re
from typing import NamedTuple

from vmsonar.host.files import read_text
from vmsonar.host.roots import Host


class JobNaming(NamedTuple):
    """The client's settings; None where there is no Lustre."""

    lustre_jobid_var: str | None = None
    lustre_jobid_name: str | None = None

    def name(self, program: str, user: int | None) -> str | None:
        """What requests of a program are booked under; None where that takes its environment or another secret."""
        template = self.lustre_jobid_name if self.lustre_jobid_var == "nodelocal" else None
        template = "%e.%u" if self.lustre_jobid_var == "procname_uid" else template
        if template is None or user is None:
            return None
        host = os.uname().nodename
        values = {"%e": program, "%u": str(user), "%h": host, "%H": host.partition(".")[0]}
        parts = re.split("(%.?)", template)
        if any(part.startswith("%") and part not in values for part in parts):
            return None
        return "".join(values.get(part, part) for part in parts)


def job_naming(host: Host) -> JobNaming:
    """Read anew each time: an administrator may set it at any moment."""
    for folder in (host.sys / "fs/lustre", host.proc / "fs/lustre"):
        variable = read_text(folder / "jobid_var")
        if variable is not None:
            return JobNaming(variable or None, read_text(folder / "jobid_name") or None)
    return JobNaming()
