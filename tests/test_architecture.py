"""The pages name only files, modules and functions that exist, and the map shows every room."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "vmsonar": ROOT / "vmsonar",
    "vmsonar_inspect": ROOT / "inspect/vmsonar_inspect",
    "vmsonar_archive": ROOT / "archive/vmsonar_archive",
}
MAP = ROOT / "docs/architecture.md"
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
#: A file or folder of ours, and perhaps a name in it.
REFERENCE = re.compile(
    r"((?:[\w.-]+/)*(?:[\w.-]+\.(?:py|sql|yaml|tsv|toml|md|c|txt|js|css)|[\w-]+/?))(?::([\w.]+))?"
)
MODULE = re.compile(r"\bvmsonar(?:_archive|_inspect)?(?:\.[a-z_]\w*)+")


def spans(page: Path) -> list[str]:
    """What a page writes as code within its lines."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


def located(path: str) -> Path | None:
    """The file from the root of the tree, or from the package that has its room."""
    places = [place / path for place in (ROOT, *PACKAGES.values())]
    return next((place for place in places if place.exists()), None)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes and assigned names of a module, with those of its classes as `Class.name`."""
    return frozenset(_names(ast.parse(file.read_text()).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(prefix + node.name)
        if isinstance(node, ast.ImportFrom):
            found += [prefix + (alias.asname or alias.name) for alias in node.names]
        if isinstance(node, ast.ClassDef):
            found += _names(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.If):  # what a type checker sees, and a module loads when it is asked for
            found += _names(node.body, prefix)
        for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
            if isinstance(target, ast.Name):
                found.append(prefix + target.id)
    return found


def fault_of_path(path: str, name: str | None) -> str | None:
    file = located(path)
    if file is None:
        return "no such file"
    if name is not None and name not in names_in(file):
        return f"{file.relative_to(ROOT)} has no {name}"
    return None


def fault_of_module(dotted: str) -> str | None:
    package, *parts = dotted.split(".")
    place = PACKAGES[package]
    if package == "vmsonar" and not (place / parts[0]).is_dir():
        return None  # a unit, a key or a file that is called vmsonar.something
    for index, part in enumerate(parts):
        if (place / part).is_dir():
            place /= part
        elif (module := place / f"{part}.py").exists():
            rest = ".".join(parts[index + 1 :])
            return None if not rest or rest in names_in(module) else f"{module.name} has no {rest}"
        else:
            return None if ".".join(parts[index:]) in names_in(place / "__init__.py") else f"no {part} there"
    return None


def is_ours(path: str) -> bool:
    """Whether a path of some page is meant to be in this tree: it begins with one of its folders."""
    first, slash, rest = path.partition("/")
    return bool(slash and rest) and first in {
        "vmsonar",
        "archive",
        "inspect",
        "tests",
        "bench",
        "docs",
        "cloud-init",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page):
    stale = []
    for span in spans(page):
        found = REFERENCE.fullmatch(span)
        if found and (is_ours(found[1]) or (page == MAP and ("/" in found[1] or ".py" in found[1]))):
            stale += [f"`{span}`: {fault}" for fault in [fault_of_path(found[1], found[2])] if fault]
    faults = {dotted: fault_of_module(dotted) for dotted in MODULE.findall(page.read_text())}
    stale += [f"`{dotted}`: {fault}" for dotted, fault in faults.items() if fault]
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        if not (page.parent / link).exists():
            stale.append(f"link to {link}: no such file")
    assert not stale, f"{page.relative_to(ROOT)} names what is not there:\n" + "\n".join(stale)


def test_the_map_shows_every_room_in_the_order_of_the_contracts():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", MAP.read_text(), re.MULTILINE)
    for package in PACKAGES:
        layers = next(each["layers"] for each in contracts if each.get("containers") == [package])
        ordered = [room for layer in layers for room in layer.split(" | ") if not room.startswith("__")]
        assert [row for row in rows if row in ordered] == ordered, f"the table of rooms of {package}"


def test_no_two_packages_have_a_room_of_the_same_name():
    """A room's name alone says where it is."""
    rooms = [path.parent.name for place in PACKAGES.values() for path in place.glob("*/__init__.py")]
    assert sorted(rooms) == sorted(set(rooms))
