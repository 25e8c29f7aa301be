"""Series ids: UUIDv5 (RFC 9562) of a name that says what the thing is, in the archive's own namespace."""

from uuid import UUID, uuid5


class SeriesIds:
    """Makes the series ids of one namespace; the name strings are part of the format."""

    def __init__(self, namespace: UUID) -> None:
        self._namespace = namespace

    def node(self, machine_id: str) -> str:
        return self._of(f"node:{machine_id}")

    def process(self, boot: str, pid: int, start_ticks: int) -> str:
        return self._of(f"process:{boot}:{pid}:{start_ticks}")

    def job(self, boot: str, pgid: int, start_ticks: int) -> str:
        return self._of(f"job:{boot}:{pgid}:{start_ticks}")

    def container(self, container_id: str) -> str:
        return self._of(f"container:{container_id}")

    def gpu(self, gpu_uuid: str) -> str:
        return self._of(f"gpu:{gpu_uuid}")

    def _of(self, name: str) -> str:
        return str(uuid5(self._namespace, name))
