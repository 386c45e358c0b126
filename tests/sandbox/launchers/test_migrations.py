"""Live migrations on simulated nodes, with the writes of KubeVirt."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from sandbox.launchers import nodes, pods
from sandbox.launchers.pods import MIGRATIONS, Migration, Pod
from sandbox.step import Change, Delete, Step
from sandbox.vmis import VMIS, SimulatedVMI
from tests.sandbox.launchers.builders import (
    LAUNCHER,
    MOVED,
    NOW,
    READY,
    SIMULATED,
    body,
    created,
    named,
    node,
    pod,
    vmi,
)
from tests.sandbox.replay import RECORDINGS, Recording


def migration(phase: str = "", **metadata: Any) -> Migration:
    meta = {"name": "move", "namespace": "ns", "uid": "m1", "finalizers": [nodes.FINALIZER], **metadata}
    return msgspec.convert({"metadata": meta, "spec": {"vmiName": "web"}, "status": {"phase": phase}}, Migration)


def migrate(
    subject: SimulatedVMI | None, *launchers: Pod, phase: str = "", now: datetime = NOW, **metadata: Any
) -> Step:
    both = named(node("node01"), node("node02"))
    return nodes.migration_step(migration(phase, **metadata), subject, launchers, both, now)


def changed_by(step: Step) -> dict[str, Any]:
    """The patch of a VMI."""
    [change] = step.effects
    assert isinstance(change, Change)
    return body(change.patch)


TARGET = pod("target", node="node02", phase="Running", migrationJobUID="m1")
STATE = {"migrationUid": "m1", "startTimestamp": NOW.isoformat(), "targetNode": "node02", "targetPod": "target"}
ENDED = {**STATE, "endTimestamp": NOW.isoformat()}


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
    state = changed_by(migrate(vmi(), pod(phase="Running"), TARGET, phase="Scheduling"))["status"]["migrationState"]
    assert (state["sourceNode"], state["targetNode"], state["endTimestamp"]) == ("node01", "node02", None)
    assert (state["sourcePod"], state["targetPod"]) == (LAUNCHER, "target")


def test_a_migration_ends_on_the_target_node() -> None:
    moving = vmi(migrationState=STATE, evacuationNodeName="node01")
    assert migrate(moving, phase="Running").after_s == nodes.DURATION_S
    changed = changed_by(migrate(moving, phase="Running", now=NOW + timedelta(seconds=nodes.DURATION_S)))
    assert changed["metadata"]["labels"] == {"kubevirt.io/nodeName": "node02"}
    assert (changed["status"]["nodeName"], changed["status"]["evacuationNodeName"]) == ("node02", None)
    step = migrate(vmi(migrationState={**ENDED, "completed": True}), phase="Running")
    assert body(step.write)["status"]["phase"] == "Succeeded"


def finished(domain: dict[str, Any], *conditions: dict[str, str]) -> dict[str, Any]:
    """The last patch of a VMI whose migration has ended."""
    return changed_by(
        migrate(vmi(domain=domain, migrationState=ENDED, conditions=[READY, *conditions]), phase="Running")
    )


FACTS = {
    "it has begun": lambda status: "startTimestamp" in status.get("migrationState", {}),
    "it has ended": lambda status: bool(status.get("migrationState", {}).get("endTimestamp")),
    "the VMI is on the target": lambda status: status.get("nodeName") in ("real", "node02"),
    "it is complete": lambda status: bool(status.get("migrationState", {}).get("completed")),
    "no CPU waits": lambda status: "conditions" in status and "HotVCPUChange" not in str(status["conditions"]),
    "the VMI has the CPUs": lambda status: status.get("currentCPUTopology", {}).get("sockets") == 2,
}
"""What a write of a migration tells, by the status of the VMI or by the patch of the status."""


def told(statuses: Iterable[dict[str, Any]]) -> list[set[str]]:
    """The facts that become true together, in their order."""
    found: list[set[str]] = []
    for status in statuses:
        new = {name for name, is_true in FACTS.items() if is_true(status)} - set().union(*found)
        found += [new] if new else []
    return found


def test_a_migration_for_more_cpus_ends_in_the_same_writes_as_in_the_recording() -> None:
    vmis = [obj["status"] for _, obj in Recording("real-vm-more-sockets").events if obj["kind"] == VMIS.kind]
    [first, *_] = (number for number, each in enumerate(vmis) if "HotVCPUChange" in str(each["conditions"]))
    begun = changed_by(migrate(vmi(), pod(phase="Running"), TARGET, phase="Scheduling"))
    later = NOW + timedelta(seconds=nodes.DURATION_S)
    ended = changed_by(migrate(vmi(migrationState=STATE), phase="Running", now=later))
    complete = finished({"cpu": {"sockets": 2}}, CPU_CHANGE)
    assert told(each["status"] for each in (begun, ended, complete)) == told(vmis[first:])


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
    for subject in (vmi("Failed"), fixed, vmi(migrationState={"migrationUid": "another"})):
        assert body(migrate(subject).write)["status"]["phase"] == "Failed"


def test_a_recorded_migration_has_the_simulated_phases_and_the_finalizer() -> None:
    """Recorded beside the real virt-controller and virt-api: a pool's migration, until vmherd deletes it."""
    events = json.loads((RECORDINGS / "pool-migration.json").read_text())["events"]
    seen = [each["object"] for each in events if each["object"]["kind"] == MIGRATIONS.kind]
    phases = [each.get("status", {}).get("phase", "") for each in seen]
    assert [*dict.fromkeys(each for each in phases if each in SIMULATED)] == SIMULATED
    ended = phases.index("Succeeded") + 2
    held = [each["metadata"].get("finalizers") for each in seen]
    assert held == [[nodes.FINALIZER]] * ended + [None] * (len(seen) - ended)
    assert {each["metadata"]["labels"]["kubevirt.io/vmi-name"] for each in seen[1:]} == {"rec-0"}


def test_a_migration_has_kubevirts_finalizer_until_it_has_ended() -> None:
    assert body(migrate(vmi(), finalizers=["mine"]).write)["metadata"]["finalizers"] == ["mine", nodes.FINALIZER]
    for phase in ("Succeeded", "Failed"):
        assert body(migrate(vmi(), phase=phase).write)["metadata"]["finalizers"] == []
        assert migrate(vmi(), phase=phase, finalizers=[]) == Step()
    [deletion] = migrate(None, phase="Running").effects
    assert isinstance(deletion, Delete), "the VMI is gone"


def test_the_deletion_of_a_running_migration_ends_it() -> None:
    step = migrate(vmi(migrationState=STATE), phase="Running", deletionTimestamp=NOW.isoformat())
    assert changed_by(step)["status"]["migrationState"].keys() == {"endTimestamp", "failed"}
    assert body(step.write)["status"]["phase"] == "Failed"
    target = pods.pod_step(TARGET, vmi(migrationState={**ENDED, "failed": True}), NOW)
    assert body(target.write)["status"]["phase"] == "Failed"
