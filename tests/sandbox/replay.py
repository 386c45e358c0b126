"""Replays a recording of real KubeVirt on the simulator, and compares the events.

For each kind of object, the simulator must cause the same events in the same order. The comparison ignores the fields
in `LEFT_OUT`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from controller.kubevirt.resources import CONTROLLER_REVISIONS
from informers.resource import Resource
from sandbox.claims import WAITING_PHASE
from sandbox.settings import BEHAVIOR, READY_AFTER, SimulationSettings
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.fakes.garbage import collect_garbage
from tests.fakes.requests import Document
from tests.sandbox.machines import Machines

RECORDINGS: Final = Path(__file__).parent.parent / "recordings"
BEHAVIORS: Final = {"fail-start": "fail", "crash": "crash-loop"}
"""The failures that the node of the recordings can simulate, and the simulator's name for each failure."""

HOLLOW: Final = "hollow/behavior"
IMPORTED: Final = {WAITING_PHASE: "PendingPopulation", READY_AFTER: "4s"}
"""The annotations of a simulated disk that waits for its VM, as in the recording."""

LEFT_OUT: Final = {
    "metadata.resourceVersion, metadata.uid": "The server chooses them. UIDs are replaced by numbers.",
    "times": "Only whether there is a time is compared. The simulator's times are finer than KubeVirt's.",
    "fields that are null": "The API server drops such fields from lists in a merge patch. Clients see no difference.",
    "metadata.namespace, node names": "They belong to the place, not to the sequence.",
    "annotations of behavior": "The recordings' node and the simulator are told by different annotations how to fail.",
    "VMI spec: defaults": "virt-api's webhook fills them in: CPU, features, interface, network, eviction, pull policy.",
    "status.activePods": "Two loops race to write the Pod's UID. The names are UIDs.",
    "status.launcherContainerImageVersion": "The value names the image. Two loops race to remove the value at the end.",
    "status.interfaces[].ipAddress, ipAddresses": "The recordings' node gives no addresses. A real node does.",
    "finalizers and generation of a VMI that is deleted and has ended": (
        "Two loops race to remove the two finalizers. Both finalizers are compared until then."
    ),
    "the object of DELETED": "It is the last stored object, or that object with its last change: the server's choice.",
}
"""The fields that the comparison ignores, with the reasons. All other fields must be equal."""

_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
_DEFAULTS: Final = (
    ("domain", "cpu", "model"),
    ("domain", "cpu", "maxSockets"),
    ("domain", "features"),
    ("domain", "memory", "maxGuest"),
    ("evictionStrategy",),
)
_DEFAULT_VALUES: Final[tuple[tuple[tuple[str, ...], object], ...]] = (
    (("domain", "cpu"), {"cores": 1, "sockets": 1, "threads": 1}),
    (("domain", "devices", "interfaces"), [{"bridge": {}, "name": "default"}]),
    (("networks",), [{"name": "default", "pod": {}}]),
)

Told = tuple[str, Document]
"""The type of an event, and the fields of the object that are compared."""


class Recording:
    def __init__(self, name: str) -> None:
        self._content = json.loads((RECORDINGS / f"{name}.json").read_text())
        self.before: list[Document] = self._content["before"]
        self.actions: list[Document] = self._content["actions"]
        self.lasts_s: float = self._content["events"][-1]["t"]
        self._specs = {_identity(obj): obj["spec"] for obj in self.before}
        self.events = [(event["type"], self._whole(event["object"])) for event in self._content["events"]]

    def story(self, resource: Resource[Any]) -> list[Told]:
        return told(self.before, self.events, resource)

    def spec_after(self, generation: int) -> Document:
        """The spec of the VM in this generation."""
        [spec, *_] = [
            obj["spec"]
            for _, obj in self.events
            if obj["kind"] == VMS.kind and obj["metadata"]["generation"] == generation
        ]
        return dict(spec)

    def new_vm(self) -> Document:
        """The VM as its user creates it."""
        [spec, *_] = [obj["spec"] for type_, obj in self.events if type_ == "ADDED"]
        spec = json.loads(json.dumps(spec))
        annotations = spec["template"]["metadata"]["annotations"]
        if HOLLOW in annotations:
            annotations[BEHAVIOR] = BEHAVIORS[annotations.pop(HOLLOW)]
        for disk in spec.get("dataVolumeTemplates", ()):
            disk["metadata"]["annotations"] = IMPORTED
        return {"apiVersion": VMS.api_version, "kind": VMS.kind, "metadata": {"name": "vm"}, "spec": spec}

    def _whole(self, obj: Document) -> Document:
        """The object with its spec. The recording omits a spec that has not changed."""
        spec = obj.get("spec", self._specs.get(_identity(obj)))
        self._specs[_identity(obj)] = spec
        return {**obj, "spec": spec}


class Replay:
    """The simulator with the objects of the recording, in virtual time."""

    def __init__(self, recording: Recording, *, settings: SimulationSettings) -> None:
        self._recording = recording
        self.machines = Machines(defaults=settings)
        self._before = [self._put(obj) for obj in recording.before]
        self._began = self.machines.server.version
        self.machines.live(30)
        self.steps_before = list(self.machines.steps)

    def play(self, *, lasts_s: float) -> None:
        times = [action["t"] for action in self._recording.actions]
        for action, t, following in zip(self._recording.actions, times, [*times[1:], lasts_s], strict=True):
            self._act(action["action"])
            self.machines.live(0.01)
            collect_garbage(self.machines.server)
            self.machines.live(following - t)

    def story(self, resource: Resource[Any]) -> list[Told]:
        return told(self._before, list(self._events()), resource)

    def _events(self) -> Iterator[Told]:
        known = {obj["metadata"]["uid"] for obj in self._before}
        for event in self.machines.server.events:
            obj = json.loads(event.body)
            if event.version > self._began and event.resource is not CONTROLLER_REVISIONS:
                uid = obj["metadata"]["uid"]
                yield "DELETED" if event.deleted else "MODIFIED" if uid in known else "ADDED", obj
                known.add(uid)

    def _put(self, obj: Document) -> Document:
        """Create an object that existed before the recording. A VM gets the ControllerRevision that KubeVirt creates at
        the VM's start.
        """
        resource = {VMS.kind: VMS, VMIS.kind: VMIS}[obj["kind"]]
        made = self.machines.create(resource, {**obj, "metadata": {**obj["metadata"], "namespace": "default"}})
        if resource is VMS:
            meta = obj["metadata"]
            owner = {"apiVersion": "kubevirt.io/v1", "kind": VMS.kind, "name": "vm", "uid": meta["uid"]}
            name = f"revision-start-vm-{meta['uid']}-{meta['generation']}"
            revision = {
                "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
                "data": {"spec": obj["spec"]},
                "revision": meta["generation"],
            }
            self.machines.create(CONTROLLER_REVISIONS, revision)
        return made

    def _act(self, action: str) -> None:
        match action:
            case "VirtualMachine created":
                self.machines.create(VMS, self._recording.new_vm())
            case "VirtualMachine deleted":
                orphans = any(
                    "orphan" in (obj["metadata"].get("finalizers") or ()) for _, obj in self._recording.events
                )
                self.machines.delete(VMS, "vm", propagation="Orphan" if orphans else "Background")
            case "VirtualMachineInstance deleted":
                self.machines.delete(VMIS, "vm")
            case "QEMU killed":
                self.machines.patch(VMIS, "vm", {"status": {"phase": "Failed"}})
            case _:
                generation = self.machines.get(VMS)["metadata"]["generation"] + 1
                self.machines.patch(VMS, "vm", {"spec": self._recording.spec_after(generation)})


def told(before: list[Document], events: list[Told], resource: Resource[Any]) -> list[Told]:
    """Return the events about objects of one kind. Each object has only the fields that the replay compares.

    Events that change none of these fields are left out.
    """
    numbers: dict[str, str] = {}
    for obj in (*before, *(obj for _, obj in events)):
        uid = obj["metadata"]["uid"]
        numbers.setdefault(uid, f"{obj['kind']}-{len(numbers)}")
    told: list[Told] = []
    last: dict[str, Document] = {obj["metadata"]["uid"]: _reduced(obj, numbers) for obj in before}
    for type_, obj in events:
        if obj["kind"] != resource.kind:
            continue
        uid = obj["metadata"]["uid"]
        reduced = {"uid": numbers[uid]} if type_ == "DELETED" else _reduced(obj, numbers)
        if reduced != last.get(uid):
            told.append((type_, reduced))
        last[uid] = reduced
    return told


def _reduced(obj: Document, numbers: dict[str, str]) -> Document:
    text = json.dumps(obj)
    for uid, number in numbers.items():
        text = text.replace(uid, number)
    reduced = _without_times(json.loads(text))
    meta, status = reduced["metadata"], reduced.get("status") or {}
    for name in ("resourceVersion", "namespace", "managedFields"):
        meta.pop(name, None)
    for holder in (meta, _inner(reduced["spec"], "template", "metadata")):
        for name in (HOLLOW, BEHAVIOR):
            (holder.get("annotations") or {}).pop(name, None)
    _place(meta, status)
    if obj["kind"] == VMIS.kind:
        _leave_out_defaults(reduced["spec"])
        if "deletionTimestamp" in meta and status.get("phase") in ("Succeeded", "Failed"):
            meta.pop("finalizers", None)
            meta.pop("generation", None)
            status.pop("launcherContainerImageVersion", None)
    if "conditions" in status:
        status["conditions"] = {condition["type"]: condition for condition in status["conditions"]}
    return reduced


def _place(meta: Document, status: Document) -> None:
    if "kubevirt.io/nodeName" in (meta.get("labels") or {}):
        meta["labels"]["kubevirt.io/nodeName"] = "node"
    if "nodeName" in status:
        status["nodeName"] = "node"
    if "launcherContainerImageVersion" in status:
        status["launcherContainerImageVersion"] = "image"
    status.pop("activePods", None)
    for interface in status.get("interfaces") or ():
        interface.pop("ipAddress", None)
        interface.pop("ipAddresses", None)


def _leave_out_defaults(spec: Document) -> None:
    for *path, name in _DEFAULTS:
        _inner(spec, *path).pop(name, None)
    for (*path, name), value in _DEFAULT_VALUES:
        holder = _inner(spec, *path)
        if holder.get(name) == value:
            del holder[name]
    for volume in spec.get("volumes") or ():
        _inner(volume, "containerDisk").pop("imagePullPolicy", None)


def _inner(holder: Document, *path: str) -> Document:
    for name in path:
        holder = holder.get(name) or {}
    return holder


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_times(inner) for inner in value]
    return "a time" if isinstance(value, str) and _TIME.match(value) else value


def _identity(obj: Document) -> str:
    return str(obj["metadata"]["uid"])
