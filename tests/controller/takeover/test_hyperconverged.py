"""The step in the annotation of HyperConverged that stops virt-controller's loops.

`operated` does the work of the HyperConverged operator: it writes its own spec and applies the annotation's steps.
"""

import json
from typing import Any

import pytest

from controller.takeover import hyperconverged
from controller.takeover.virt_controller import KUBEVIRTS, stop_patch
from tests.controller.takeover.test_virt_controller import patched

PATCHES = "/spec/customizeComponents/patches"
OTHER = {"resourceType": "DaemonSet", "resourceName": "virt-handler", "patch": "{}", "type": "strategic"}
GATE = {"op": "add", "path": "/spec/configuration/migrations", "value": {"allowPostCopy": True}}
LIST = {"op": "add", "path": PATCHES, "value": [OTHER]}
WHOLE = {"op": "add", "path": "/spec/customizeComponents", "value": {"patches": [OTHER]}}
FLAGS = {"op": "replace", "path": "/spec/customizeComponents", "value": {"flags": {"api": {"v": "5"}}}}
APPENDED = {"op": "add", "path": f"{PATCHES}/-", "value": OTHER}

ANNOTATIONS: list[list[dict[str, Any]]] = [
    [],
    [GATE],
    [LIST],
    [GATE, LIST, APPENDED],
    [WHOLE],
    [FLAGS],
    [LIST, {"op": "remove", "path": PATCHES}],
    [FLAGS, LIST, GATE],
]


def manager(steps: list[dict[str, Any]] | str | None, **others: str) -> Any:
    annotations = dict(others)
    if steps is not None:
        annotations[hyperconverged.ANNOTATION] = steps if isinstance(steps, str) else json.dumps(steps)
    metadata = {
        "name": "kubevirt-hyperconverged",
        "namespace": "kubevirt",
        "resourceVersion": "7",
        "annotations": annotations,
    }
    return hyperconverged.hyperconvergeds("v1").decode(json.dumps({"metadata": metadata}).encode())


def steps_after(before: Any, patch: bytes | None) -> list[dict[str, Any]] | None:
    """The steps in the annotation after the merge patch, or None if the annotation is gone."""
    if patch is None:
        return json.loads((before.metadata.annotations or {}).get(hyperconverged.ANNOTATION, "null"))
    text = json.loads(patch)["metadata"]["annotations"][hyperconverged.ANNOTATION]
    return None if text is None else json.loads(text)


def operated(steps: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The spec of the KubeVirt object that the operator writes."""
    written = {"spec": {"configuration": {}, "customizeComponents": {}}}
    spec: dict[str, Any] = patched(written, json.dumps(steps or []).encode())["spec"]
    return spec


def component_patches(spec: dict[str, Any]) -> list[dict[str, str]]:
    return list(spec["customizeComponents"].get("patches", []))


@pytest.mark.parametrize("steps", ANNOTATIONS)
def test_a_takeover_adds_one_component_patch_and_keeps_all_other_steps(steps: list[dict[str, Any]]) -> None:
    before = manager(steps)
    after = steps_after(before, hyperconverged.take_over(before)) or []
    assert after[:-1] == steps
    kept, (*others, ours) = operated(steps), component_patches(operated(after))
    assert others == component_patches(kept)
    assert ours["patch"] == stop_patch().patch
    assert hyperconverged.take_over(manager(after)) is None


@pytest.mark.parametrize("steps", ANNOTATIONS)
def test_an_undo_restores_the_spec_that_the_operator_writes(steps: list[dict[str, Any]]) -> None:
    before = manager(steps)
    taken = manager(steps_after(before, hyperconverged.take_over(before)) or [])
    left = steps_after(taken, hyperconverged.undo_takeover(taken))
    assert (left or []) == steps
    assert hyperconverged.undo_takeover(manager(left)) is None


def test_an_undo_removes_the_annotation_if_nothing_else_is_in_it() -> None:
    taken = manager([json.loads(hyperconverged.step_to_add())])
    assert steps_after(taken, hyperconverged.undo_takeover(taken)) is None


def test_an_undo_keeps_the_list_that_later_steps_append_to() -> None:
    taken = manager([json.loads(hyperconverged.step_to_add()), APPENDED])
    assert component_patches(operated(steps_after(taken, hyperconverged.undo_takeover(taken)))) == [OTHER]


def test_an_undo_keeps_the_other_patches_in_the_same_list() -> None:
    taken = manager([{**LIST, "value": [OTHER, json.loads(hyperconverged.step_to_add())["value"][0]]}])
    assert steps_after(taken, hyperconverged.undo_takeover(taken)) == [LIST]


def test_a_patch_applies_only_to_the_version_that_was_read_and_changes_only_the_annotation() -> None:
    patch = json.loads(hyperconverged.take_over(manager(None, other="kept")) or b"")
    assert patch.keys() == {"metadata"}
    assert patch["metadata"].keys() == {"resourceVersion", "annotations"}
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["annotations"].keys() == {hyperconverged.ANNOTATION}


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("[{", "is not JSON"),
        ('{"op": "add"}', "is not a JSON patch"),
        ("[1]", "is not a JSON patch"),
        ('[{"op": "add"}]', "is not a JSON patch"),
        (json.dumps([{"op": "copy", "from": "/spec/x", "path": PATCHES}]), "has a step 'copy'"),
    ],
)
def test_an_annotation_in_an_unknown_form_is_not_changed(annotation: str, why: str) -> None:
    with pytest.raises(hyperconverged.Unclear, match=why):
        hyperconverged.take_over(manager(annotation))


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ({"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": "hco", "uid": "1"}, "hco"),
        ({"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "name": "hco", "uid": "1"}, "hco"),
        ({"apiVersion": "example.com/v1", "kind": "HyperConverged", "name": "hco", "uid": "1"}, ""),
        ({"apiVersion": "hco.kubevirt.io/v1", "kind": "Other", "name": "hco", "uid": "1"}, ""),
        (None, ""),
    ],
)
def test_the_owner_of_the_kubevirt_object_manages_it(owner: dict[str, str] | None, name: str) -> None:
    metadata = {"name": "kubevirt", "ownerReferences": [owner] if owner else None}
    assert hyperconverged.manager_of(KUBEVIRTS.decode(json.dumps({"metadata": metadata}).encode())) == name
