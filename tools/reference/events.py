"""The page of all Events. Each reason in the code needs a text, and no other reason has a text."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from tools.reference.markdown import Undescribed, code, introduction, sections, table

HEADER: Final = ("reason", "type", "on", "meaning", "what to do")
WRITE: Final = re.compile(r"(?:Successful|Failed)[A-Z][A-Za-z]+|[A-Z][a-z]+Held|VirtualMachineFailure")
"""The reason of an Event about a write or a condition, or a write that waits. The code chooses it from a table."""

OPPOSITE: Final = re.compile(r"Successful(Create|Delete|Update)")
"""The reason of a write that can fail. The reason of the failure has `Failed` in place of `Successful`."""

SOURCE: Final = Path(__file__).with_name("events.md.in")

OWNERS: Final[Mapping[str, str]] = {
    "pool": "pools",
    "replicaset": "sets",
    "replicas": "both",
    "runtime": "both",
    "takeover": "the lease",
}
"""For each folder of the controller, the objects that have the Events of the folder."""


class Text(Struct, frozen=True):
    """The meaning of an Event, and what to do. `when` tells Events of the same reason apart, or is empty."""

    reason: str
    when: str
    meaning: str
    remedy: str


def read_texts(source: str) -> list[Text]:
    """Return the handwritten texts. Each has a heading, a paragraph about the meaning, and one about the remedy."""
    texts = []
    for heading, meaning, remedy in sections(source):
        reason, _, when = heading.partition(", ")
        texts.append(Text(reason, when, meaning, remedy))
    return texts


class Reason(Struct, frozen=True):
    name: str
    owner: str
    warning: bool


def page(controller: Path) -> str:
    """Return the page. Raises Undescribed."""
    found = reasons(controller)
    source = SOURCE.read_text()
    texts = read_texts(source)
    described = {text.reason for text in texts}
    if found.keys() != described:
        different = sorted(found.keys() ^ described)
        raise Undescribed(f"in only one of the code and tools/reference/{SOURCE.name}: {different}")
    rows = []
    for text in texts:
        reason = found[text.reason]
        name = code(text.reason) + (f", {text.when}" if text.when else "")
        rows.append((name, "Warning" if reason.warning else "Normal", reason.owner, text.meaning, text.remedy))
    return f"{introduction(source)}\n{table(HEADER, rows)}"


def reasons(controller: Path) -> dict[str, Reason]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(controller.rglob("*.py"))}
    constants = {name: value for tree in trees.values() for name, value in _constants(tree)}
    found: dict[str, Reason] = {}
    for path, tree in trees.items():
        owner = OWNERS.get(path.relative_to(controller).parts[0])
        if owner is None:
            continue
        for name, warning in _reasons_in(tree, {**constants, **dict(_constants(tree))}):
            before = found.get(name)
            both = before is not None and before.owner != owner
            found[name] = Reason(name, "both" if both else owner, warning)
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value)))
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value)))
            ):
                yield name, value


def _reasons_in(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for notice in (call for call in calls if ast.unparse(call.func) == "Notice"):
        given = {keyword.arg: keyword.value for keyword in notice.keywords}
        warning = not isinstance(given.get("warning"), ast.Constant)
        for part in ast.walk(given["reason"]):
            match part:
                case ast.Constant(value=str(name)):
                    yield name, warning
                case ast.Name(id=constant) if constant in constants:
                    yield constants[constant], warning
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITE.fullmatch(node.value):
            yield node.value, "Successful" not in node.value
            if OPPOSITE.fullmatch(node.value):
                yield node.value.replace("Successful", "Failed"), True
