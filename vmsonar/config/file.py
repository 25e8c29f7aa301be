"""Reads the configuration file strictly (YAML 1.2 words, no key twice) and says what is wrong by the key's path."""

import os
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from vmsonar_archive.system.errors import UsageError, VmsonarError

from vmsonar.config.schema import Config, decode_value
from vmsonar.host.roots import archive_to_read, find_config

T = TypeVar("T", bound=msgspec.Struct)

_MAX_BYTES = 1 << 20
# Far more than any configuration needs; with aliases, a few lines of YAML can expand to fill any memory.
_MAX_DEPTH = 20
_MAX_NODES = 20_000
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def _refused(said: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=said, problem_mark=mark)


#: What PyYAML lets through when something goes wrong inside: a number of 5000 digits, a mapping that is none.
_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class StrictLoader(yaml.SafeLoader):
    """A safe loader in which only `true` and `false` are booleans, and no key stands twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class has it as a class attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        #: How many nodes each one stands for, with those that it names by an alias.
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _refused(f"nested deeper than {_MAX_DEPTH} levels", mark)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._sizes:
            raise _refused("an alias stands for what it is a part of", mark)
        if not is_alias:
            self._sizes[id(node)] = self._measure(node)
        if self._sizes[id(node)] > _MAX_NODES:
            raise _refused(f"more than {_MAX_NODES} values", mark)
        return node

    def _measure(self, node: Any) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        return 1 + sum(self._sizes[id(part)] for part in parts)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if isinstance(node, yaml.ScalarNode) and _NO_TEXT.search(node.value):
            raise _refused("a character that no name or path can have", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except _ODD:
            said = f"{str(node.value)[:40]!r} is not what its form or tag says"
            raise _refused(said, node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _refused("a key must be a word", key.start_mark)
            if key.value in seen:
                raise _refused(f"key {key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _resolve(tag: str, pattern: str, first: str) -> None:
    StrictLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first)
    )


# The core schema of YAML 1.2: a country NO, a time 12:30 and a choice `none` stay words.
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789")
_resolve("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
_resolve("null", "~|null|Null|NULL|", "~nN")
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])


def parse_config(text: str, source: str) -> Config:
    """The configuration in a text; `source` is what errors call it."""
    return parse_as(Config, text, source)


def parse_as(kind: type[T], text: str, source: str) -> T:
    """A file of ours in YAML, of that form."""
    try:
        tree = yaml.load(text, StrictLoader)  # noqa: S506 - StrictLoader is a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise UsageError(f"{source}: {where}{getattr(error, 'problem', None) or error}") from None
    except _ODD as error:
        raise UsageError(f"{source}: not what a configuration can hold: {error}") from None
    try:
        return msgspec.convert({} if tree is None else tree, kind, dec_hook=decode_value)
    except msgspec.ValidationError as error:
        # Imported here: a daemon whose configuration is right need not hold it in memory.
        from vmsonar.config.errors import key_message

        raise UsageError(f"{source}: {key_message(str(error), kind)}") from None


def read_config(path: Path) -> Config:
    """The configuration in a file."""
    return read_as(Config, path)


def read_as(kind: type[T], path: Path) -> T:
    """A file of ours in YAML, of that form."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path}: larger than 1 MiB: not a configuration")
        return parse_as(kind, content.decode(), str(path))
    except PermissionError:
        raise VmsonarError(f"{path}: no permission to read the configuration") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def load_config(given: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration in force; all defaults where there is no file."""
    path = find_config(given, environment)
    return Config() if path is None else read_config(path)


def archive_in_question(
    given: Path | None, config: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The archive that a command is about; the configuration is read only where nothing else names one."""
    if given is not None or environment.get("VMSONAR_ARCHIVE"):
        return archive_to_read(given, None, environment)
    return archive_to_read(None, load_config(config, environment).archive, environment)
