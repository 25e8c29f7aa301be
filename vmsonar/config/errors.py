"""Says in our words what msgspec finds wrong in a configuration."""

import re
from difflib import get_close_matches

from msgspec import inspect as types

_WORDS = {
    "object": "a section",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def key_message(message: str, config: type) -> str:
    """`Expected `str`, got `int` - at `$.a.b`` as `a.b: expected text, got a number`."""
    text, _, path = message.partition(" - at `")
    path = path.rstrip("`").removeprefix("$").removeprefix(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        return f"{path}.{unknown[1]}: unknown key{_meant(unknown[1], _at(config, path))}".removeprefix(".")
    if wrong := re.fullmatch(r"Invalid enum value (.*)", text):
        kind = _at(config, path)
        choices = map(str, kind.values) if isinstance(kind, types.LiteralType) else ()
        return f"{path}: {wrong[1]} is not one of {', '.join(choices)}"
    said = re.sub(r"`([a-z |]+?)( [<>]= [0-9]+)?`", _in_words, text[:1].lower() + text[1:]).replace("`", "")
    return f"{path}: {said}" if path else f"{said}: a configuration has a line `key: value` for each key"


def _in_words(found: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in found[1].split(" | ")) + (found[2] or "")


def _meant(key: str, section: types.Type | None) -> str:
    known = [field.encode_name for field in section.fields] if isinstance(section, types.StructType) else []
    close = get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _at(config: type, path: str) -> types.Type | None:
    """The type that belongs at a path such as `a.b[0]`."""
    kind: types.Type | None = types.type_info(config)
    for name in re.findall(r"[^.\[\]]+|\[", path):
        if not name.isdigit() and name != "...":
            kind = _within(_bare(kind), name)
    return _bare(kind)


def _within(kind: types.Type | None, name: str) -> types.Type | None:
    if name == "[":
        return getattr(kind, "item_type", None)
    fields = kind.fields if isinstance(kind, types.StructType) else ()
    return next((field.type for field in fields if field.encode_name == name), None)


def _bare(kind: types.Type | None) -> types.Type | None:
    """The type without what msgspec wraps around it, and of `x | null` the x."""
    while isinstance(kind, types.Metadata):
        kind = kind.type
    if isinstance(kind, types.UnionType):
        return next((_bare(one) for one in kind.types if not isinstance(one, types.NoneType)), None)
    return kind
