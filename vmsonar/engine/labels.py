"""Which labels of a container are passed on: labels can hold anything, secrets too."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

#: What compose, the OCI annotations and the usual orchestrators say about what a container is.
DEFAULT_LABELS = (
    "com.docker.compose.project",
    "com.docker.compose.service",
    "com.docker.compose.container-number",
    "com.docker.stack.namespace",
    "com.docker.swarm.*",
    "com.hashicorp.nomad.*",
    "io.kubernetes.*",
    "io.podman.compose.project",
    "io.podman.compose.service",
    "org.opencontainers.image.*",
)
_MAX_LENGTH = 1024


def allowed(labels: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str] | None:
    """The labels that a pattern names, their values bounded; None when there are none."""
    kept = {
        name: value[:_MAX_LENGTH]
        for name, value in sorted(labels.items())
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return kept or None
