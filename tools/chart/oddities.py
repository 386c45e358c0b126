"""Generates the policies that warn about useless parts of a manifest, in the words of `controller.kubevirt.oddities`.

CEL has no recursion, so a policy has tables of all objects whose fields are known, without those of lists in lists.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from controller.kubevirt.annotations import PARTITION
from controller.kubevirt.oddities import LEGACY, NAMES, NO_FIELD, POOL_TEMPLATE, SET_TEMPLATE

TEMPLATE_NAMES: Final = NAMES["spec"]["template"]
NO_FIELDS: Final = NO_FIELD.replace("is no field", "are no fields").replace(" it ", " they ")
STEPS: Final = f"dyn(object).metadata.?annotations[?'{PARTITION}'].orValue('0')"


def conditions(*, of_pools: bool) -> list[dict[str, str]]:
    """Return the conditions of a check. So a write of vmherd that leaves the spec alone gets no warning."""
    changes = ["oldObject == null", "object.spec != oldObject.spec"]
    if of_pools:
        changes.append(f"{STEPS} != {STEPS.replace('object', 'oldObject')}")
    return [{"name": "changes", "expression": " || ".join(changes)}]


def variables(*, of_pools: bool) -> list[dict[str, str]]:
    if of_pools:
        before, within, names, root, vmi = f"spec.{POOL_TEMPLATE}.", "", NAMES, POOL_TEMPLATE, ".?spec.?template.?spec"
    else:
        before, within, names, root, vmi = "", f"spec.{SET_TEMPLATE}.", TEMPLATE_NAMES, SET_TEMPLATE, ".?spec"
    objects = list(_objects(names, within, "variables.template"))
    found = "variables.objects[path]"
    unknown = f"each.filter(name, !(name in variables.names[path]) && !(name in {list(LEGACY)}))"
    texts = f"type(each) == map ? {unknown}.map(name, '{before}' + path + name).join(', ') : ''"
    all_texts = _joined(f"(type({found}) == list ? {found} : [{found}]).map(each, {texts})")
    expressions = {
        "template": f"dyn(object).spec.?{root}.orValue({{}})",
        "vmi": f"dyn(object).spec.?{root}{vmi}.orValue({{}})",
        "names": _table((path, str(list(fields))) for path, fields, _ in objects),
        "objects": _table((path, value) for path, _, value in objects),
        "unknown": _joined(f"variables.objects.map(path, {all_texts})"),
        "volumes": "variables.vmi.?volumes.orValue([])",
        "volumeNames": "variables.volumes.map(each, string(each.name))",
        "twice": "variables.volumeNames.filter(name, variables.volumeNames.filter(each, each == name).size() > 1)",
        "empty": "variables.volumes.filter(e, 'containerDisk' in e && e.containerDisk.?image.orValue('') == '')",
        "replicas": "dyn(object).spec.?replicas.orValue(1)",
        "last": f"{STEPS}.substring({STEPS}.lastIndexOf(',') + 1).split(':')[0]",
    }
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def validations(*, of_pools: bool) -> list[dict[str, str]]:
    is_above = "int(variables.last) >= (variables.replicas > 1 ? variables.replicas : 1)"
    found = [
        (
            "variables.unknown == ''",
            f"a field {NO_FIELD}",
            f"variables.unknown + (variables.unknown.contains(', ') ? ' {NO_FIELDS}' : ' {NO_FIELD}')",
        ),
        (
            "variables.twice.size() == 0",
            "volumes have the same name",
            "string(variables.volumeNames.filter(name, name == variables.twice[0]).size())"
            " + ' volumes have the name ' + variables.twice[0]",
        ),
        (
            "variables.empty.size() == 0",
            "the containerDisk of a volume has no image",
            "'the containerDisk of the volume ' + variables.empty.map(each, each.name).join(', ') + ' has no image'",
        ),
        (
            f"!variables.last.matches('^[0-9]{{1,12}}$') || !({is_above})",
            f"annotation {PARTITION} is usually above the ordinals of the VMs: then no VM is updated",
            f"'annotation {PARTITION} is ' + variables.last + ', and the ordinals of ' + string(variables.replicas)"
            " + ' VMs are usually lower: then no VM is updated'",
        ),
    ]
    keys = ("expression", "message", "messageExpression")
    return [dict(zip(keys, each, strict=True)) for each in (found if of_pools else found[:-1])]


def _objects(
    names: Any, path: str, root: str, chain: str = "", *, in_list: bool = False
) -> Iterator[tuple[str, Iterable[str], str]]:
    """Yield the path of each object, its fields, and CEL for the object, or for the list of all objects with this path.

    `chain` selects the object from `root`, or from each element of the list `root`.
    """
    if names is TEMPLATE_NAMES["spec"]:
        root, chain = "variables.vmi", ""
    chosen = f"{chain}.orValue({{}})" if chain else ""
    yield path, names, f"dyn({root}.map(each, each{chosen}))" if in_list and chain else f"{root}{chosen}"
    for name, inner in names.items():
        below = f"{path}{name}."
        if isinstance(inner, dict):
            yield from _objects(inner, below, root, f"{chain}.?{name}", in_list=in_list)
        elif isinstance(inner, list) and not in_list:
            yield from _objects(inner[0], below, f"{root}{chain}.?{name}.orValue([])", in_list=True)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"'{key}': {value}" for key, value in rows) + "}"


def _joined(texts: str) -> str:
    return f"{texts}.filter(text, text != '').join(', ')"
