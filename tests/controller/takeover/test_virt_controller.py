"""Whether virt-controller's loops for sets and pools are stopped, and the JSON patch that stops these loops."""

import json
from typing import Any

import pytest

from controller.takeover import virt_controller
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
