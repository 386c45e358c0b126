"""Whether virt-controller's loops for sets and pools are stopped, and the JSON patch that stops these loops."""

import json
from typing import Any

import pytest

from controller.takeover import hyperconverged, virt_controller
from controller.takeover.virt_controller import KUBEVIRTS, stop_patch
from tests.fakes.patches import json_patch

FLAG = "--rs-controller-threads"
SETS, POOLS = virt_controller.LOOPS
OTHERS = [
    {"resourceType": "Deployment", "resourceName": "virt-controller", "patch": '[{"op":"x"}]', "type": "json"},
    {"resourceType": "DaemonSet", "resourceName": "*", "patch": "{}", "type": "strategic"},
]
CUSTOMIZATIONS: list[Any] = [
    {},
    {"customizeComponents": {}},
    {"customizeComponents": {"flags": {"api": {"v": "5"}}}},
    {"customizeComponents": {"patches": []}},
    {"customizeComponents": {"patches": OTHERS}},
    None,
]


def deployment(*args: str, command: tuple[str, ...] = ("virt-controller",), name: str = "virt-controller") -> bytes:
    sidecar = {"name": "sidecar", "args": [f"{FLAG}=0"]}
    containers = [sidecar, {"name": name, "command": list(command), "args": list(args)}]
    return json.dumps({"spec": {"template": {"spec": {"containers": containers}}}}).encode()


def kubevirt(spec: Any) -> dict[str, Any]:
    made = {"metadata": {"name": "kubevirt", "namespace": "kubevirt", "resourceVersion": "7"}}
    return made if spec is None else {**made, "spec": spec}


def patched(document: Any, patch: bytes | None) -> Any:
    return json_patch(document, json.loads(patch or b"[]"))


def read(document: Any) -> Any:
    return virt_controller.KUBEVIRTS.decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("arguments", "stopped"),
    [
        ([], False),
        ([f"{FLAG}=0"], True),
        ([FLAG, "0"], True),
        ([f"{FLAG}=3"], False),
        ([FLAG], False),
        ([FLAG, "--pool-controller-threads=0"], False),
        ([f"{FLAG}=0", f"{FLAG}=3"], False),
        ([f"{FLAG}=3", FLAG, "0"], True),
        (["--other-rs-controller-threads=0"], False),
        ([f"{FLAG}="], False),
    ],
)
def test_a_loop_is_stopped_if_its_last_flag_sets_no_workers(arguments, stopped):
    assert virt_controller.is_stopped(["-v", "2", *arguments], FLAG) is stopped


@pytest.mark.parametrize(
    ("wire", "working"),
    [
        (deployment("--port", "8443"), (SETS, POOLS)),
        (deployment(f"{FLAG}=0"), (POOLS,)),
        (deployment(f"{FLAG}=0", "--pool-controller-threads=0"), ()),
        (deployment("-v", "2", command=("virt-controller", "--pool-controller-threads", "0", FLAG, "0")), ()),
        (deployment("--pool-controller-threads=0", name="renamed"), (POOLS,)),
        (b"{}", (SETS, POOLS)),
    ],
)
def test_running_loops_are_read_from_command_and_arguments_of_the_container(wire, working):
    assert virt_controller.active_loops(virt_controller.DEPLOYMENTS.decode(wire), virt_controller.LOOPS) == working


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}, True),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}, False),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2}, False),
        ({"observedGeneration": 2}, True),
        (None, False),
    ],
)
def test_a_rollout_is_complete_when_no_old_pod_is_left(status, done):
    wire = json.dumps({"metadata": {"generation": 2}, "status": status}).encode()
    assert virt_controller.is_rolled_out(virt_controller.DEPLOYMENTS.decode(wire)) is done


@pytest.mark.parametrize("spec", CUSTOMIZATIONS)
def test_a_takeover_appends_one_patch(spec):
    before = kubevirt(spec)
    after = patched(before, virt_controller.take_over(read(before)))
    held = ((spec or {}).get("customizeComponents") or {}).get("patches", [])
    *kept, ours = after["spec"]["customizeComponents"]["patches"]
    assert kept == held
    assert (ours["resourceType"], ours["resourceName"], ours["type"]) == ("Deployment", "virt-controller", "json")
    args = {"spec": {"template": {"spec": {"containers": [{"args": ["-v", "2"]}]}}}}
    rested = patched(args, ours["patch"].encode())["spec"]["template"]["spec"]["containers"][0]["args"]
    assert rested == ["-v", "2", "--rs-controller-threads=0", "--pool-controller-threads=0"]
    assert virt_controller.take_over(read(after)) is None, "a second takeover changes nothing"


@pytest.mark.parametrize("spec", CUSTOMIZATIONS)
def test_an_undo_removes_exactly_our_patch(spec):
    before = kubevirt(spec)
    after = patched(before, virt_controller.take_over(read(before)))
    restored = patched(after, virt_controller.undo_takeover(read(after)))
    patches = restored["spec"]["customizeComponents"].pop("patches", None)
    held = ((spec or {}).get("customizeComponents") or {}).get("patches", [])
    flags = {name: value for name, value in ((spec or {}).get("customizeComponents") or {}).items() if name == "flags"}
    assert patches == (held or None)
    assert restored["spec"]["customizeComponents"] == flags
    assert virt_controller.undo_takeover(read(restored)) is None


def test_our_patch_is_recognized_in_another_spelling_and_position():
    spelled = json.dumps(json.loads(virt_controller.stop_patch().patch), indent=2)
    respelled = {"resourceType": "deployment", "resourceName": "virt-controller", "patch": spelled, "type": "json"}
    before = kubevirt({"customizeComponents": {"patches": [respelled, *OTHERS, respelled]}})
    assert virt_controller.take_over(read(before)) is None
    assert (
        patched(before, virt_controller.undo_takeover(read(before)))["spec"]["customizeComponents"]["patches"] == OTHERS
    )


def test_a_patch_that_is_not_json_is_not_ours():
    broken = {"resourceType": "Deployment", "resourceName": "virt-controller", "patch": "- op: add", "type": "json"}
    assert virt_controller.undo_takeover(read(kubevirt({"customizeComponents": {"patches": [broken]}}))) is None


# The step in the annotation of HyperConverged that stops virt-controller's loops. `operated` does the work of the
# HyperConverged operator: it writes its own spec and applies the annotation's steps.


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
