"""Replays recorded sequences of a real KubeVirt against the plans of a pool. The recorded VM is the pool's only VM."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.rosters import Downtimes
from controller.pool.members.snapshot import Snapshot
from controller.pool.plan import plan
from controller.runtime.actions import Patch, Plan
from tests.pool_builders import POOLS, Json, snapshot

RECORDINGS = Path(__file__).parent / "recordings"
TICK_S = 0.5


class Moment(NamedTuple):
    """The VM and its VMI, `seconds` after the beginning of the recording."""

    seconds: float
    now: datetime
    vm: VirtualMachine
    vmi: VirtualMachineInstance | None


def moments(name: str, owner: Pool) -> Iterator[Moment]:
    """The VM in the cache after each recorded event, and every half second between the events.

    The VM gets the first name of the pool, the pool as its owner, and the revision label `web-1`.
    """
    recording = json.loads((RECORDINGS / f"{name}.json").read_text())
    began = datetime.fromisoformat(recording["events"][0]["object"]["metadata"]["creationTimestamp"])
    machine: Json = {}
    instance: Json = {}
    shown = 0.0
    for event in [*recording["events"], *recording.get("outline", ())]:
        while machine and shown + TICK_S < event["t"]:
            shown += TICK_S
            yield _moment(shown, began, machine, instance, owner)
        shown = event["t"]
        found = event.get("object") or _object_of(event, began + timedelta(seconds=shown))
        if found["kind"] == "VirtualMachine":
            machine = {**machine, **found}
        else:
            instance = {} if event["type"] == "DELETED" else found
        yield _moment(shown, began, machine, instance, owner)


class Replay:
    """Plans each reconciliation of the pool, but carries out only the changes of the pool's annotations."""

    def __init__(self, owner: Pool) -> None:
        self.owner = owner
        self.downtimes = Downtimes()
        self.writes: list[Patch] = []

    def snapshot(self, moment: Moment) -> Snapshot:
        running = [moment.vmi] if moment.vmi is not None else []
        return snapshot(self.owner, [moment.vm], vmis=running, now=moment.now, downtimes=self.downtimes)

    def run_pass(self, moment: Moment) -> Plan:
        todo = plan(self.snapshot(moment))
        for action in todo.actions:
            if isinstance(action, Patch) and action.is_note:
                self.writes.append(action)
                self._annotate(json.loads(action.body)["metadata"]["annotations"])
        return todo

    def restart(self) -> None:
        """Forget the state that a controller keeps only in memory."""
        self.downtimes = Downtimes()

    def _annotate(self, changes: Json) -> None:
        merged = {**(self.owner.metadata.annotations or {}), **changes}
        annotations = {name: value for name, value in merged.items() if value is not None}
        self.owner = replace(self.owner, metadata=replace(self.owner.metadata, annotations=annotations))


def _moment(seconds: float, began: datetime, machine: Json, instance: Json, owner: Pool) -> Moment:
    reference = msgspec.to_builtins(controller_reference(POOLS, owner.metadata))
    labels = {"app": "web", "kubevirt.io/vm-pool-revision-name": "web-1"}
    metadata = {
        **machine["metadata"],
        "name": f"{owner.metadata.name}-0",
        "namespace": owner.metadata.namespace,
        "labels": labels,
        "ownerReferences": [reference],
    }
    vm = VMS.decode(msgspec.json.encode({**machine, "metadata": metadata}))
    vmi = None
    if instance:
        controller = msgspec.to_builtins(controller_reference(VMS, vm.metadata))
        own = {**metadata, **instance["metadata"], "labels": labels, "ownerReferences": [controller]}
        own |= {"name": metadata["name"], "namespace": metadata["namespace"]}
        vmi = VMIS.decode(msgspec.json.encode({**instance, "metadata": own}))
    return Moment(seconds, began + timedelta(seconds=seconds), vm, vmi)


def _object_of(line: Json, now: datetime) -> Json:
    """The object in a line of the recording. The line has no condition times, so the present time is used."""
    is_vm = line["kind"] == "VirtualMachine"
    condition = {"type": "Ready", "status": line.get("ready"), "lastTransitionTime": now.isoformat()}
    status = {("printableStatus" if is_vm else "phase"): line["state"]}
    status["conditions"] = [condition] if line.get("ready") else []
    metadata = {"uid": line["uid"], "deletionTimestamp": now.isoformat() if line.get("deleting") else None}
    return {"kind": line["kind"], "metadata": metadata, "status": status}
