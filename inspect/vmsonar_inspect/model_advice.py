"""What is advised, as data: verdicts, sizes, and use against what was there."""

from enum import StrEnum

import msgspec

from vmsonar_inspect.model import NOTHING, Answer, Use


class Severity(StrEnum):
    """How much a verdict matters."""

    PROBLEM = "problem"
    ADVICE = "advice"


class Verdict(Answer, kw_only=True):
    """A judgement with the rule and the figures it rests on."""

    rule: str
    about: str
    subject: str
    name: str
    severity: Severity
    title: str
    says: str
    advice: str
    confidence: str
    figures: dict[str, float]
    conditions: list[str]
    gain: str = "none"


class Size(Answer, kw_only=True):
    """A machine that would have held something."""

    cores: int | None = None
    memory_gib: int | None = None
    gpus: int | None = None
    flavour: str | None = None


class Advice(Answer, kw_only=True):
    """Used against what was there, and the size that would have done, for the machine or one job."""

    about: str
    subject: str
    name: str
    cpus: int | None = None
    cores: Use = NOTHING
    memory_total_bytes: int | None = None
    memory_bytes: Use = NOTHING
    gpus: int | None = None
    gpu_util: Use = NOTHING
    gpu_memory_total_bytes: int | None = None
    gpu_memory_bytes: Use = NOTHING
    disk_read_rate: Use = NOTHING
    disk_write_rate: Use = NOTHING
    received_rate: Use = NOTHING
    sent_rate: Use = NOTHING
    enough_data: bool = False
    size_p95: Size | None = None
    size_peak: Size | None = None
    larger_would_help: bool | None = None
    larger_why: str | None = None
    verdicts: list[Verdict] = msgspec.field(default_factory=list)
