"""Makes templates that KubeVirt's types allow, other spellings of a template, and templates with another meaning.

The source is `tests/recordings/api-types.json`, which records how Go's types treat empty values. The controller has
another table with the same facts. This module does not use the controller's table.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st

Json: TypeAlias = dict[str, Any]

RECORDINGS = Path(__file__).parent / "recordings"
API_TYPES: dict[str, dict[str, list[str]]] = json.loads((RECORDINGS / "api-types.json").read_text())
POOL_PATHS = API_TYPES["VirtualMachinePoolSpec"]
_PREFIX = "virtualMachineTemplate."

SAME_QUANTITIES = (
    ("1Gi", "1024Mi", "1048576Ki", "1073741824", 1073741824, "1.0Gi"),
    ("1", "1000m", "1e0", 1, "1000000u"),
    ("1500M", "1.5G", "1500000k", "15E8"),
    ("0.5", "500m", "5e-1"),
)
NAMED_LISTS = {"disks", "interfaces", "filesystems", "gpus", "hostDevices", "networks", "volumes"}


class Node:
    """A node of the tree of recorded paths, with its child nodes."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.children: dict[str, Node] = {}


def tree_of(paths: dict[str, list[str]]) -> Node:
    """The recorded paths below `virtualMachineTemplate`, as a tree."""
    root = Node()
    for kind, listed in paths.items():
        for path in listed:
            if path.startswith(_PREFIX):
                node = root
                for part in re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path.removeprefix(_PREFIX)):
                    node = node.children.setdefault(part, Node())
                node.kinds.add(kind)
    return root


ROOT = tree_of(POOL_PATHS)
ROOT.children["spec"].children["dataVolumeTemplates"].children["[]"].children.pop("status", None)
VM_SPEC = ROOT.children["spec"]
NO_NODE = Node()
"""Stands for a field that the types do not have."""


def _value(draw: st.DrawFn, node: Node = VM_SPEC, name: str = "", depth: int = 0) -> Any:
    """Draw a value for a field. Go's JSON encoder omits some empty values; such a value is never drawn."""
    if "quantities" in node.kinds:
        return draw(_QUANTITIES)[0]
    if "[]" in node.children:
        count = draw(_ONE_OR_TWO)
        items = [_value(draw, node.children["[]"], "", depth + 1) for _ in range(count)]
        return [{**item, **_identity(name, at)} if isinstance(item, dict) else item for at, item in enumerate(items)]
    if "{}" in node.children:
        return {"memory": _value(draw, node.children["{}"], "", depth + 1)}
    if "emptyListOrMapMeansAbsent" in node.kinds:
        return draw(_LISTS_OR_MAPS)
    if node.children:
        chosen = draw(_names(node, 3 if depth else 2))
        return {each: _value(draw, node.children[each], each, depth + 1) for each in chosen}
    if "presenceMatters" in node.kinds or "emptyMeansAbsent" in node.kinds:
        return {}
    return draw(_SCALARS)


def _identity(list_name: str, index: int) -> Json:
    if list_name == "dataVolumeTemplates":
        return {"metadata": {"name": f"disk{index}"}}
    return {"name": f"item{index}"} if list_name in NAMED_LISTS else {}


# A strategy that is made again for each draw costs more time than the draw.
_QUANTITIES = st.sampled_from(SAME_QUANTITIES)
_ONE_OR_TWO = st.integers(1, 2)
_LISTS_OR_MAPS = st.sampled_from([{"key": "value"}, ["value"]])
_SCALARS = st.sampled_from(["x", 7, True])


@cache
def _names(node: Node, most: int, *more: str) -> st.SearchStrategy[list[str]]:
    """Lists of names of the node's children, and of the names in `more`."""
    return st.lists(st.sampled_from([*sorted(node.children), *more]), max_size=most, unique=True)


@cache
def _orders(count: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(count))


@cache
def _one_of(equal: tuple[str | int, ...]) -> st.SearchStrategy[object]:
    return st.sampled_from(equal)


@cache
def _absent(node: Node) -> st.SearchStrategy[object]:
    return st.sampled_from(_as_good_as_absent(node))


@st.composite
def vm_specs(draw: st.DrawFn) -> Json:
    """A VM spec with a domain, and any other fields that the types allow."""
    spec = _value(draw)
    spec.pop("running", None)
    inner = {**_value(draw, VM_SPEC.children["template"].children["spec"], "", 1)}
    inner["domain"] = {**inner.get("domain", {}), "machine": {"type": "q35"}}
    spec["template"] = {"metadata": {"labels": {"app": "web"}}, "spec": inner}
    spec["runStrategy"] = draw(st.sampled_from(["Always", "Halted", "Manual"]))
    return spec


@st.composite
def respelled(draw: st.DrawFn, value: Any) -> Any:
    """The same VM spec in another spelling: nulls, empty values, zeros, quantities, the order of fields."""
    return _respelled(draw, value, VM_SPEC)


def _respelled(draw: st.DrawFn, value: Any, node: Node) -> Any:
    if "quantities" in node.kinds:
        same = next((each for each in SAME_QUANTITIES if value in each), None)
        return value if same is None else draw(_one_of(same))
    if isinstance(value, list):
        inner = node.children.get("[]", NO_NODE)
        return [_respelled(draw, item, inner) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {
        name: _respelled(draw, inner, node.children.get(name) or node.children.get("{}") or NO_NODE)
        for name, inner in value.items()
    }
    if node is VM_SPEC and fields.get("runStrategy") in ("Always", "Halted") and draw(st.booleans()):
        fields["running"] = fields.pop("runStrategy") == "Always"
    if "emptyListOrMapMeansAbsent" in node.kinds:
        return fields  # the keys of a map are the user's
    for name in draw(_names(node, 4, "unheardOf")):
        if name not in fields and name not in ("[]", "{}", "running"):
            fields[name] = draw(_absent(node.children.get(name, NO_NODE)))
    names = sorted(fields)
    return {names[index]: fields[names[index]] for index in draw(_orders(len(names)))}


def _as_good_as_absent(node: Node) -> list[Any]:
    empty: list[Any] = [None]
    if "emptyMeansAbsent" in node.kinds:
        empty += [{}, {"unheardOf": None}]
    if "emptyListOrMapMeansAbsent" in node.kinds:
        empty += [{}] if "{}" in node.children else [[]]
    if "zeroMeansAbsent" in node.kinds:
        empty += ["", 0, False]
    return empty


def paths_where_presence_matters() -> list[tuple[str, ...]]:
    """The fields below `spec` for which an empty object differs from a missing field.

    Fields inside lists and maps are left out.
    """
    listed = (
        path.removeprefix(_PREFIX) for path in POOL_PATHS["presenceMatters"] if path.startswith(f"{_PREFIX}spec.")
    )
    plain = (tuple(path.split("."))[1:] for path in listed if "[" not in path and "{" not in path)
    return sorted(path for path in plain if path != ("template",))


def with_presence(spec: Json, path: tuple[str, ...]) -> Json:
    """The spec with an empty object at the path. If the path already has a value, the spec does not change."""
    first, *rest = path
    held = spec.get(first)
    if not rest:
        return spec if held is not None else {**spec, first: {}}
    return {**spec, first: with_presence(held if isinstance(held, dict) else {}, tuple(rest))}
