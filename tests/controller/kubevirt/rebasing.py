"""VMs and their templates, and the VM on the server after a three-way merge."""

from typing import Any, TypeAlias

import msgspec

from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.normal_form import VM_SPEC, encoded, normal_form
from tests.fakes.patches import merge_patch

Json: TypeAlias = dict[str, Any]

OWN = {"name": "vm-0", "uid": "uid-of-the-vm", "resourceVersion": "42", "finalizers": ["example.org/theirs"]}


def vm(spec: Json, **metadata: object) -> Json:
    return {"kind": "VirtualMachine", "metadata": {**OWN, **metadata}, "spec": spec, "status": {"ready": True}}


def shape(spec: Json, **metadata: object) -> Json:
    return {"metadata": metadata, "spec": spec}


def patch_of(current: Json, old: Json, new: Json) -> Json | None:
    body = VM_RULES.merge(*(msgspec.json.encode(each) for each in (current, old, new)))
    return None if body is None else msgspec.json.decode(body)


def rebased(current: Json, old: Json, new: Json) -> Json:
    patch = patch_of(current, old, new)
    return current if patch is None else merge_patch(current, patch)


def rebased_spec(current: Json, old: Json, new: Json) -> Json:
    return rebased(vm(current), shape(old), shape(new))["spec"]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def canonical(value: object) -> bytes:
    """JSON with sorted fields, for the comparison of values. In Python, true equals 1. In this JSON, true differs from
    1.
    """
    return msgspec.json.encode(value, order="sorted")


def meaning(spec: Json) -> bytes:
    return encoded(normal_form(spec, VM_SPEC))
