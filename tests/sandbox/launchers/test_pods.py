"""The simulated virt-launcher Pods, nodes, migrations and evictions, without a server."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.apimachinery.conditions import Condition
from sandbox.launchers import nodes, pods
from sandbox.launchers.pods import PODS, Node, NodeSpec, Pod
from sandbox.step import Change, Delete, Step
from sandbox.virt_api.admission import Verdict, judge_eviction
from sandbox.vmis import VMIS, SimulatedVMI
from tests.sandbox.launchers.builders import LAUNCHER, MOVED, NOW, UID, UNPAUSED, body, created, named, node, pod, vmi
from tests.sandbox.replay import Recording


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


def told_by(subject: SimulatedVMI, cluster: dict[str, Node], launcher: Pod) -> tuple[dict[str, Any], dict[str, Any]]:
    """The status that a node writes, and its condition Ready."""
    step = nodes.vmi_step(subject, cluster, [launcher], NOW)
    assert step is not None
    status = body(step.write)["status"]
    [ready] = [each for each in status["conditions"] if each["type"] == "Ready"]
    return status, ready


def test_a_vmi_on_a_node_that_does_not_answer_runs_unready_until_its_pod_is_gone() -> None:
    silent = named(node("node01", ready="Unknown"), node("node02"))
    status, ready = told_by(vmi(), silent, pod())
    assert (status.get("phase"), ready["status"], ready.get("reason")) == (None, "False", None)
    unready = with_ready(vmi(), ready)
    waiting = nodes.vmi_step(unready, silent, [pod()], NOW) or Step()
    assert waiting.after_s == 300
    deletion = nodes.vmi_step(unready, silent, [pod()], NOW + timedelta(seconds=300)) or Step()
    assert deletion.effects == (Delete(PODS, LAUNCHER, f"{LAUNCHER}-uid"),)
    _, ready = told_by(unready, silent, pod(deleted=True))
    assert ready["reason"] == "PodTerminating"
    late = nodes.vmi_step(with_ready(vmi(), ready), silent, [pod(deleted=True)], NOW + timedelta(seconds=900))
    assert late == Step(), "nothing is left to do before the node changes"
    assert nodes.pod_waits(pod(deleted=True), silent)
    fenced = named(msgspec.structs.replace(silent["node01"], spec=NodeSpec(taints=({"key": nodes.OUT_OF_SERVICE},))))
    for gone in (fenced, named(node("node02"))):
        status, ready = told_by(unready, gone, pod(deleted=True))
        assert (status["phase"], ready["reason"], status.get("reason")) == fenced_state()
        assert nodes.pod_waits(pod(deleted=True), gone), "the VMI fails first"
    assert not nodes.pod_waits(pod(deleted=True), named(node("node01")))


def fenced_state() -> tuple[str, str, str | None]:
    """The end of a VMI on a lost node in the recordings: its phase, and the reasons of Ready and of the phase."""
    [end] = {fenced_in(name) for name in ("vm-node-lost", "real-vm-node-fenced")}
    return end


def fenced_in(recording: str) -> tuple[str, str, str | None]:
    story = Recording(recording).story(VMIS)
    [deleted] = (number for number, (type_, _) in enumerate(story) if type_ == "DELETED")
    status = story[deleted - 1][1]["status"]
    return status["phase"], status["conditions"]["Ready"]["reason"], status.get("reason")


def with_ready(subject: SimulatedVMI, ready: dict[str, Any]) -> SimulatedVMI:
    """The VMI with this condition Ready only."""
    conditions = (msgspec.convert(ready, Condition),)
    return msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=conditions))


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
