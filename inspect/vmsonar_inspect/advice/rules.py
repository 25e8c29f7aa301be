"""The rules file: read strictly, an override laid over the default, each condition parsed once."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from vmsonar_archive.system.errors import UsageError, reason_of

from vmsonar_inspect.advice.figures import Figures
from vmsonar_inspect.facts.model import Severity

_LINE = re.compile(r"(\w+) *(<=|>=|<|>) *(?:([0-9.]+) *\* *)?(\w+|[0-9.]+)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class Rule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One rule as it stands in the file."""

    about: str
    title: str
    severity: Severity = Severity.ADVICE
    when: list[str]
    any: list[str] = []
    unless: list[str] = []
    says: str
    advice: str = ""
    gain: str = "none"
    #: What it comes from: among all verdicts only the first rule of a cause is shown.
    cause: str = ""
    #: The figure that says what it cost: core, GiB or GPU hours, by the end of its name.
    cost: str = ""
    certain: bool = False


class Enough(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much data something needs."""

    samples: int
    coverage: float
    seconds: float = 0


class Confidence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How much data each level of confidence needs."""

    high: Enough
    medium: Enough


class Flavour(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A machine type on offer."""

    name: str
    cpus: int
    memory_gib: float
    gpus: int = 0


class Sizes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The sizes in which machines are offered."""

    cores: list[int]
    memory_gib: list[int]
    headroom: float = 0.1
    flavours: list[Flavour] = []


class Prices(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What weighs how much when verdicts are ranked, in core hours."""

    core_hours: float = 1.0
    gib_hours: float = 0.125
    gpu_hours: float = 40.0
    problem: float = 0.05


class RuleBook(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    thin: Enough
    confidence: Confidence
    sizes: Sizes
    prices: Prices
    rules: dict[str, Rule]


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison; unknown figures make it false."""

    figure: str
    sign: str
    factor: float
    other: str | float

    def holds(self, figures: Figures) -> bool:
        left = figures.get(self.figure)
        right = figures.get(self.other) if isinstance(self.other, str) else self.other
        if left is None or right is None:
            return False
        return _COMPARE[self.sign](left, self.factor * right)

    def names(self) -> list[str]:
        """The figures it looks at."""
        return [self.figure, self.other] if isinstance(self.other, str) else [self.figure]


@cache
def parse_condition(line: str) -> Condition:
    """Reads `threads_p95 >= 2 * cpus`."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise UsageError(f"not a condition such as 'threads_p95 >= 2 * cpus': {line!r}")
    figure, sign, factor, other = match.groups()
    number = other if re.match("[A-Za-z_]", other) else float(other)
    return Condition(figure, sign, float(factor or 1), number)


def load_rules(override: Path | None = None) -> RuleBook:
    """Our rules, with a site's differences laid over them."""
    where = "rules.yaml"
    ours = resources.files("vmsonar_inspect").joinpath("advice", where).read_text(encoding="utf-8")
    content = _parse(ours, where)
    if override is not None:
        where = str(override)
        try:
            content = _laid_over(content, _parse(override.read_text(encoding="utf-8"), where))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the rules in {override}: {reason_of(error)}") from None
    try:
        book = msgspec.convert(content, RuleBook)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from None
    for name, rule in book.rules.items():
        try:
            for line in (*rule.when, *rule.any, *rule.unless):
                parse_condition(line)
        except UsageError as error:
            raise UsageError(f"{where}: rules.{name}: {error}") from None
    return book


def _parse(text: str, where: str) -> Any:
    import yaml

    try:
        # The loader in C takes a tenth of the time.
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not YAML: {error}") from None


def _laid_over(base: Any, change: Any) -> Any:
    """Merges mappings key by key; null removes a key, anything else replaces it."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    merged = base | {name: _laid_over(base.get(name), value) for name, value in change.items()}
    return {name: value for name, value in merged.items() if not (name in change and value is None)}
