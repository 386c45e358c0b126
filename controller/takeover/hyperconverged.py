"""Stops virt-controller's loops where the HyperConverged operator manages KubeVirt, as in OpenShift Virtualization.

The operator writes the whole KubeVirt spec, and then applies the JSON patch in an annotation
(docs/how-to/openshift.md). Its spec has no component patches. So the first step that adds a patch must add the whole
list, and a later step appends to the list. The functions in this module send no requests.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from controller.takeover.virt_controller import PATCHES, ComponentPatch, KubeVirt, is_ours, stop_patch
from informers.meta import annotations_of
from informers.resource import PartialObject, Resource

ANNOTATION: Final = "kubevirt.kubevirt.io/jsonpatch"
GROUP: Final = "hco.kubevirt.io"
KIND: Final = "HyperConverged"
PLURAL: Final = "hyperconvergeds"
VERSIONS: Final = ("v1", "v1beta1")
CUSTOMIZATIONS: Final = PATCHES.rpartition("/")[0]
Step: TypeAlias = dict[str, Any]


class Unclear(Exception):
    """The annotation has a form in which vmherd cannot place its step. `str()` says why."""


def hyperconvergeds(version: str) -> Resource[PartialObject]:
    return Resource(PartialObject, group=GROUP, version=version, plural=PLURAL, kind=KIND)


def manager_of(kubevirt: KubeVirt) -> str:
    """Return the name of the HyperConverged object, of the same namespace, that owns this KubeVirt, or ""."""
    for owner in kubevirt.metadata.owner_references or ():
        if owner.kind == KIND and owner.api_version.partition("/")[0] == GROUP:
            return owner.name
    return ""


def take_over(manager: PartialObject) -> bytes | None:
    """Return a merge patch that adds vmherd's step to the annotation, or None if it has it. Raises Unclear."""
    steps = _steps_of(manager)
    if any(map(_has_our_patch, steps)):
        return None
    return _encode(manager, [*steps, _our_step(to_list=_have_list(steps))])


def step_to_add() -> str:
    """Return the step for an annotation without other component patches, as JSON."""
    return msgspec.json.encode(_our_step(to_list=False)).decode()


def _our_step(*, to_list: bool) -> Step:
    ours = msgspec.to_builtins(stop_patch())
    if to_list:
        return {"op": "add", "path": f"{PATCHES}/-", "value": ours}
    return {"op": "add", "path": PATCHES, "value": [ours]}


def undo_takeover(manager: PartialObject) -> bytes | None:
    """Return a merge patch that removes vmherd's patch from the annotation, or None without it. Raises Unclear."""
    steps = _steps_of(manager)
    if not any(map(_has_our_patch, steps)):
        return None
    left: list[Step] = []
    for number, step in enumerate(steps):
        if not _has_our_patch(step):
            left.append(step)
        elif step["path"] == PATCHES:
            others = [value for value in step["value"] if not _is_our_value(value)]
            # Later steps may append to this list, so an empty list stays for them.
            if others or any(each["path"].startswith(f"{PATCHES}/") for each in steps[number + 1 :]):
                left.append({**step, "value": others})
    return _encode(manager, left)


def _steps_of(manager: PartialObject) -> list[Step]:
    """Return the steps in the annotation. Raises Unclear if the annotation is not a JSON patch."""
    text = annotations_of(manager.metadata).get(ANNOTATION, "")
    if not text.strip():
        return []
    try:
        steps = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Unclear(f"the annotation {ANNOTATION} is not JSON: {error}") from error
    if not isinstance(steps, list) or not all(
        isinstance(step, dict) and isinstance(step.get("path"), str) and isinstance(step.get("op"), str)
        for step in steps
    ):
        raise Unclear(f"the annotation {ANNOTATION} is not a JSON patch")
    return steps


def _have_list(steps: Sequence[Step]) -> bool:
    """Return True if the list of component patches exists after these steps. Raises Unclear."""
    exists = False
    for step in steps:
        path, value = step["path"], step.get("value")
        if path not in (PATCHES, CUSTOMIZATIONS):
            continue
        match step["op"]:
            case "remove":
                exists = False
            case "add" | "replace":
                inner = value.get("patches") if isinstance(value, dict) else None
                exists = isinstance(value if path == PATCHES else inner, list)
            case "test":
                pass
            case other:
                raise Unclear(f"the annotation {ANNOTATION} has a step {other!r} for {path}")
    return exists


def _has_our_patch(step: Step) -> bool:
    value = step.get("value")
    if step["op"] not in ("add", "replace"):
        return False
    if step["path"] == PATCHES and isinstance(value, list):
        return any(map(_is_our_value, value))
    return step["path"].startswith(f"{PATCHES}/") and _is_our_value(value)


def _is_our_value(value: object) -> bool:
    try:
        return is_ours(msgspec.convert(value, ComponentPatch))
    except msgspec.ValidationError:
        return False


def _encode(manager: PartialObject, steps: Sequence[Step]) -> bytes:
    """Return a merge patch that sets the annotation. The API server rejects the patch if the object has changed."""
    text = msgspec.json.encode(steps).decode() if steps else None
    metadata = {"resourceVersion": manager.metadata.resource_version, "annotations": {ANNOTATION: text}}
    return msgspec.json.encode({"metadata": metadata})
