"""Finds the pure functions with a loop, and those that the rows of the cost test reach."""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.cost.meter import Call, forget_results

ROOT: Final = Path(__file__).parents[2]
CONTRACT: Final = "decisions are pure"
"""The beginning of the name of the import contract that lists the pure modules."""

ALSO_PURE: Final = (
    "informers.errors",
    "informers.meta",
    "informers.resource",
    "informers.http.warnings",
    "informers.watch.parser",
)
LOOPS: Final = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CALLS: Final = frozenset({"all", "any", "filter", "map", "max", "min", "sorted", "sum", "join"})
WIRING: Final = frozenset({"rules", "wiring"})
"""The modules of a kind that may do more than decide."""


def functions_with_loops() -> Iterator[str]:
    """Yield the pure functions with a loop, as `path:name`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [pure] = (each["source_modules"] for each in contracts if each["name"].startswith(CONTRACT))
    for module in (*pure, *ALSO_PURE):
        path = ROOT / module.replace(".", "/")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            if file.stem not in WIRING:
                place = file.relative_to(ROOT).as_posix()
                yield from (f"{place}:{name}" for name in _with_loops(ast.parse(file.read_text()), ""))


def _with_loops(tree: ast.AST, prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _with_loops(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and any(map(_is_loop, ast.walk(node))):
            yield f"{prefix}{node.name}"


def _is_loop(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, LOOPS)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in CALLS


def reached_by(calls: Iterable[Call]) -> set[str]:
    """Return the functions of the source that the calls execute, as `path:name`."""
    found: set[str] = set()

    def enter(frame: FrameType, _event: str, _argument: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT):
            found.add(f"{file.relative_to(ROOT).as_posix()}:{frame.f_code.co_qualname}")

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        for call in calls:
            forget_results()
            call()
    finally:
        sys.settrace(before)
    return found
