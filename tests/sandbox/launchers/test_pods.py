"""The simulated virt-launcher Pods, nodes, migrations and evictions, without a server."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller.apimachinery.conditions import Condition
from sandbox.launchers import nodes, pods
from sandbox.launchers.pods import PODS, Migration, Node, NodeSpec, Pod
from sandbox.step import Change, Create, Delete, Patch, Step
from sandbox.virt_api.admission import Verdict, judge_eviction
from sandbox.vmis import VMIS, SimulatedVMI

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
UID = "0b5f6d1e"
LAUNCHER = "virt-launcher-web"
UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
READY = {"type": "Ready", "status": "True"}
OWNER = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "name": "web",
    "uid": UID,
    "controller": True,
}


def vmi(
    phase: str = "Running",
    *,
    node: str = "node01",
    deleted: bool = False,
    domain: dict[str, Any] | None = None,
    **status: Any,
) -> SimulatedVMI:
    meta: dict[str, Any] = {
        "name": "web",
        "namespace": "ns",
        "uid": UID,
        "resourceVersion": "7",
        "labels": {"app": "web"},
    }
    if deleted:
        meta["deletionTimestamp"] = NOW
    conditions = [READY, {"type": "LiveMigratable", "status": "True"}] if phase == "Running" else []
    interfaces = [{"name": "default", "ipAddress": "10.0.0.7"}]
    known = {"phase": phase, "nodeName": node or None, "conditions": conditions, "interfaces": interfaces}
    document = {"metadata": meta, "spec": {"domain": domain or {}}, "status": {**known, **status}}
    return VMIS.decode(msgspec.json.encode(document))


def pod(
    name: str = LAUNCHER, *, node: str = "node01", phase: str = "Pending", deleted: bool = False, **labels: str
) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "ownerReferences": [OWNER]}
    meta["labels"] = {f"kubevirt.io/{label}": value for label, value in labels.items()}
    if deleted:
        meta["deletionTimestamp"] = NOW
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node or None}, "status": {"phase": phase}}, Pod)


def node(name: str, *, ready: str = "True", cordoned: bool = False) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": status}, Node)


def named(*all_nodes: Node) -> dict[str, Node]:
    return {each.metadata.name: each for each in all_nodes}


def body(patch: Patch | None) -> dict[str, Any]:
    assert patch is not None
    return json.loads(patch.body)


def created(step: Step) -> dict[str, Any]:
    [effect] = step.effects
    assert isinstance(effect, Create)
    return json.loads(effect.body)


@pytest.mark.parametrize("phase", ["", "Pending", "Succeeded", "Failed"])
def test_a_vmi_that_is_not_scheduled_or_has_ended_gets_no_pod(phase: str) -> None:
    assert pods.vmi_step(vmi(phase), ()) == Step()


def test_a_deleted_vmi_and_a_vmi_with_a_pod_get_no_pod() -> None:
    assert pods.vmi_step(vmi(deleted=True), ()) == Step()
    assert pods.vmi_step(vmi(), (pod(),)).effects == ()


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (None, {f"{LAUNCHER}-uid": "node01", "target-uid": ""}),
        ({f"{LAUNCHER}-uid": "", "target-uid": ""}, {f"{LAUNCHER}-uid": "node01"}),
        ({"gone": "node03", f"{LAUNCHER}-uid": "node01"}, {"gone": None, "target-uid": ""}),
    ],
)
def test_the_status_of_a_vmi_names_the_uids_and_the_nodes_of_its_pods(
    told: dict[str, str] | None, written: dict[str, str | None]
) -> None:
    step = pods.vmi_step(vmi(activePods=told), (pod(), pod("target", node="")))
    assert body(step.write)["status"] == {"activePods": written}


def test_the_active_pods_are_written_once_and_stay_after_the_end_of_the_vmi() -> None:
    assert pods.vmi_step(vmi(activePods={f"{LAUNCHER}-uid": "node01"}), (pod(),)) == Step()
    assert pods.vmi_step(vmi("Failed"), (pod(),)) == Step()


def test_the_pod_of_a_vmi_has_its_labels_node_and_owner() -> None:
    manifest = created(pods.vmi_step(vmi(), ()))
    labels = {"app": "web", "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": UID, "vm.kubevirt.io/name": "web"}
    assert manifest["metadata"]["labels"] == labels
    assert manifest["metadata"]["annotations"]["kubevirt.io/domain"] == "web"
    assert manifest["spec"]["nodeName"] == "node01"
    assert (manifest["spec"]["hostname"], manifest["spec"]["subdomain"]) == ("web", "")
    [owner] = manifest["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (UID, True)
    assert manifest["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}


def test_a_pod_requests_a_tenth_of_each_virtual_cpu_and_the_memory_of_the_guest() -> None:
    domain = {"cpu": {"cores": 2, "sockets": 2, "threads": 1}, "memory": {"guest": "1Gi"}}
    assert pods.requests_of(vmi(domain=domain)) == {"cpu": "400m", "memory": "1Gi"}


def test_a_pod_that_waits_for_a_node_is_bound_to_the_node_of_its_vmi() -> None:
    binding = created(pods.pod_step(pod(node=""), vmi("Scheduled"), NOW))
    assert (binding["kind"], binding["target"]["name"]) == ("Binding", "node01")


PAUSED = {"type": "Paused", "status": "True"}
MOVED = vmi(node="node02", migrationState={"migrationUid": "m1", "completed": True, "targetPod": "target"})


@pytest.mark.parametrize(
    ("before", "subject", "phase", "conditions"),
    [
        ("Pending", vmi(), "Running", {"Ready": "True", "ContainersReady": "True", UNPAUSED: "True"}),
        ("Pending", vmi("Scheduled"), "Running", {"Ready": "False"}),
        (
            "Pending",
            vmi(conditions=[{"type": "Ready", "status": "False"}, PAUSED]),
            "Running",
            {"Ready": "False", "ContainersReady": "True", UNPAUSED: "False"},
        ),
        ("Running", vmi("Failed"), "Failed", {"Ready": "False"}),
        ("Running", MOVED, "Succeeded", {"Ready": "False"}),  # the Pod that the VMI has left
    ],
)
def test_a_pod_has_the_phase_the_readiness_and_the_address_of_its_vmi(
    before: str, subject: SimulatedVMI, phase: str, conditions: dict[str, str]
) -> None:
    status = body(pods.pod_step(pod(phase=before), subject, NOW).write)["status"]
    assert status["phase"] == phase
    assert status.get("podIP") == ("10.0.0.7" if phase == "Running" else None)
    assert conditions.items() <= {each["type"]: each["status"] for each in status["conditions"]}.items()


@pytest.mark.parametrize(("phase", "end"), [("Running", "Succeeded"), ("Scheduled", "Failed")])
def test_a_deleted_pod_ends_its_vmi(phase: str, end: str) -> None:
    change, deletion = pods.pod_step(pod(deleted=True), vmi(phase), NOW).effects
    assert isinstance(change, Change)
    assert (change.resource, body(change.patch)["status"]["phase"]) == (VMIS, end)
    assert deletion == Delete(PODS, LAUNCHER, f"{LAUNCHER}-uid", grace_s=0)


def test_a_pod_without_a_vmi_is_deleted() -> None:
    assert pods.pod_step(pod(), None, NOW).effects == (Delete(PODS, LAUNCHER, f"{LAUNCHER}-uid", grace_s=0),)


def test_a_vmi_on_a_node_that_does_not_answer_runs_unready_until_its_pod_is_gone() -> None:
    silent = named(node("node01", ready="Unknown"), node("node02"))
    step = nodes.vmi_step(vmi(), silent, [pod()], NOW)
    assert step is not None
    status = body(step.write)["status"]
    [ready] = [each for each in status["conditions"] if each["type"] == "Ready"]
    assert (status.get("phase"), ready["status"], ready.get("reason")) == (None, "False", None)
    unready = with_ready(vmi(), ready)
    waiting = nodes.vmi_step(unready, silent, [pod()], NOW)
    assert waiting is not None
    assert waiting.after_s == 300
    deletion = nodes.vmi_step(unready, silent, [pod()], NOW + timedelta(seconds=300))
    assert deletion is not None
    assert deletion.effects == (Delete(PODS, LAUNCHER, f"{LAUNCHER}-uid"),)
    told = nodes.vmi_step(unready, silent, [pod(deleted=True)], NOW)
    assert told is not None
    [ready] = [each for each in body(told.write)["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["reason"] == "PodTerminating"
    late = nodes.vmi_step(with_ready(vmi(), ready), silent, [pod(deleted=True)], NOW + timedelta(seconds=900))
    assert late == Step(), "nothing is left to do before the node changes"
    assert nodes.pod_waits(pod(deleted=True), silent)
    fenced = named(msgspec.structs.replace(silent["node01"], spec=NodeSpec(taints=({"key": nodes.OUT_OF_SERVICE},))))
    for gone in (fenced, named(node("node02"))):
        end = nodes.vmi_step(unready, gone, [pod(deleted=True)], NOW)
        assert end is not None
        assert body(end.write)["status"]["phase"] == "Failed"
        assert nodes.pod_waits(pod(deleted=True), gone), "the VMI fails first"
    assert not nodes.pod_waits(pod(deleted=True), named(node("node01")))


def with_ready(subject: SimulatedVMI, ready: dict[str, Any]) -> SimulatedVMI:
    """The VMI with this condition Ready only."""
    conditions = (msgspec.convert(ready, Condition),)
    return msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.told, conditions=conditions))


def test_a_vmi_on_a_ready_node_or_in_a_cluster_without_nodes_goes_on() -> None:
    assert nodes.vmi_step(vmi(), named(node("node01")), [], NOW) is None
    assert nodes.vmi_step(vmi(), {}, [], NOW) is None


def test_a_vmi_migrates_to_another_node_that_is_not_cordoned() -> None:
    others = named(node("node01"), node("node02", cordoned=True), node("node03"))
    assert nodes.target_for(vmi(), others) == "node03"
    assert nodes.target_for(vmi(), named(node("node01"))) == ""


def test_a_new_vmi_is_placed_on_a_schedulable_node() -> None:
    cluster = named(node("node01", cordoned=True), node("node02", ready="Unknown"), node("node03"))
    assert nodes.node_for(vmi().metadata, cluster) == "node03"
    assert nodes.node_for(vmi().metadata, named(node("node01", cordoned=True))) == ""


def migration(phase: str = "") -> Migration:
    meta = {"name": "move", "namespace": "ns", "uid": "m1"}
    return msgspec.convert({"metadata": meta, "spec": {"vmiName": "web"}, "status": {"phase": phase}}, Migration)


def migrate(subject: SimulatedVMI | None, *launchers: Pod, phase: str = "", now: datetime = NOW) -> Step:
    both = named(node("node01"), node("node02"))
    return nodes.migration_step(migration(phase), subject, launchers, both, now)


def test_a_vmi_that_must_leave_its_node_gets_a_migration() -> None:
    step = nodes.evacuation_step(vmi(evacuationNodeName="node01"))
    assert step is not None
    assert created(step)["spec"] == {"vmiName": "web"}
    assert nodes.evacuation_step(vmi()) is None
    assert nodes.evacuation_step(vmi(evacuationNodeName="node01", migrationState={"migrationUid": "m"})) is None


def test_a_migration_creates_a_pod_on_another_node() -> None:
    step = migrate(vmi(), pod(phase="Running"))
    target = created(step)
    assert target["spec"]["nodeName"] == "node02"
    assert target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] == "m1"
    assert body(step.write)["status"]["phase"] == "Scheduling"


def test_a_migration_begins_when_the_target_pod_runs() -> None:
    target = pod("target", node="node02", phase="Running", migrationJobUID="m1")
    [change] = migrate(vmi(), pod(phase="Running"), target, phase="Scheduling").effects
    assert isinstance(change, Change)
    state = body(change.patch)["status"]["migrationState"]
    assert (state["sourceNode"], state["targetNode"], state["endTimestamp"]) == ("node01", "node02", None)
    assert (state["sourcePod"], state["targetPod"]) == (LAUNCHER, "target")


def test_a_migration_ends_on_the_target_node() -> None:
    state = {"migrationUid": "m1", "startTimestamp": NOW.isoformat(), "targetNode": "node02", "targetPod": "target"}
    moving = vmi(migrationState=state, evacuationNodeName="node01")
    assert migrate(moving, phase="Running").after_s == nodes.DURATION_S
    step = migrate(moving, phase="Running", now=NOW + timedelta(seconds=nodes.DURATION_S))
    [change] = step.effects
    assert isinstance(change, Change)
    changed = body(change.patch)
    assert changed["metadata"]["labels"] == {"kubevirt.io/nodeName": "node02"}
    assert (changed["status"]["nodeName"], changed["status"]["evacuationNodeName"]) == ("node02", None)
    assert changed["status"]["migrationState"]["completed"] is True
    assert body(step.write)["status"]["phase"] == "Succeeded"


def finished(domain: dict[str, Any], *conditions: dict[str, str]) -> dict[str, Any]:
    """The patch of a SimulatedVMI when its migration has ended."""
    state = {"migrationUid": "m1", "startTimestamp": NOW.isoformat(), "targetNode": "node02", "targetPod": "target"}
    moving = vmi(domain=domain, migrationState=state, conditions=[READY, *conditions])
    [change] = migrate(moving, phase="Running", now=NOW + timedelta(seconds=nodes.DURATION_S)).effects
    assert isinstance(change, Change)
    return body(change.patch)


CPU_CHANGE = {"type": "HotVCPUChange", "status": "True"}
MEMORY_CHANGE = {"type": "HotMemoryChange", "status": "True"}


def test_a_migration_ends_a_hotplug_of_cpus_and_memory() -> None:
    domain = {"cpu": {"sockets": 4, "cores": 2}, "memory": {"guest": "2Gi"}}
    changed = finished(domain, CPU_CHANGE, MEMORY_CHANGE)
    assert changed["metadata"]["resourceVersion"] == "7"
    assert changed["status"]["conditions"] == [READY]
    assert changed["status"]["currentCPUTopology"] == {"cores": 2, "sockets": 4, "threads": 1}
    assert changed["status"]["memory"] == {"guestCurrent": "2Gi", "guestRequested": "2Gi"}


def test_a_migration_without_a_hotplug_changes_neither_conditions_nor_sizes() -> None:
    changed = finished({"cpu": {"sockets": 4}, "memory": {"guest": "2Gi"}})
    assert not {"conditions", "currentCPUTopology", "memory"} & changed["status"].keys()
    assert "resourceVersion" not in changed["metadata"]


def test_a_migration_changes_only_the_size_that_was_plugged_in() -> None:
    domain = {"cpu": {"sockets": 4}, "memory": {"guest": "2Gi"}}
    assert "memory" not in finished(domain, CPU_CHANGE)["status"]
    assert "currentCPUTopology" not in finished(domain, MEMORY_CHANGE)["status"]


def test_the_deletion_of_the_pod_that_a_vmi_has_left_does_not_end_the_vmi() -> None:
    [deletion] = pods.pod_step(pod(deleted=True), MOVED, NOW).effects
    assert isinstance(deletion, Delete)


def test_a_migration_of_a_vmi_that_has_ended_or_cannot_migrate_fails() -> None:
    fixed = vmi(conditions=[READY, {"type": "LiveMigratable", "status": "False"}])
    for subject in (None, vmi("Failed"), fixed):
        assert body(migrate(subject).write)["status"]["phase"] == "Failed"


def evicted(strategy: str | None, *, migratable: bool = True, **status: Any) -> Verdict:
    launcher = {"metadata": {"labels": {"kubevirt.io": "virt-launcher"}}, "spec": {"nodeName": "node01"}, "status": {}}
    condition = {"type": "LiveMigratable", "status": str(migratable)}
    known = {"nodeName": "node01", "conditions": [condition], **status}
    meta = {"name": "web", "namespace": "ns"}
    return judge_eviction(launcher, {"metadata": meta, "spec": {"evictionStrategy": strategy}, "status": known})


@pytest.mark.parametrize(("strategy", "migratable"), [(None, True), ("None", True), ("LiveMigrateIfPossible", False)])
def test_a_vmi_that_does_not_migrate_is_evicted(strategy: str | None, migratable: bool) -> None:
    assert evicted(strategy, migratable=migratable) == Verdict()


@pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible", "External"])
def test_an_eviction_marks_a_vmi_that_migrates(strategy: str) -> None:
    assert evicted(strategy) == Verdict('Eviction triggered evacuation of VMI "ns/web"', is_marked=True)


def test_a_vmi_that_is_marked_or_cannot_migrate_is_not_marked() -> None:
    assert evicted("LiveMigrate", evacuationNodeName="node01").denial.startswith("Evacuation in progress: ")
    assert evicted("LiveMigrate", migratable=False).denial.endswith("is not live-migratable")
    assert evicted("LiveMigrate", nodeName="node02").denial == "Eviction request for target Pod"
