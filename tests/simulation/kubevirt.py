"""KubeVirt on the simulated API server: the VM controller, the nodes with their guests, and the disks.

It acts some time after each change, as real controllers do. The nodes can be lost and return.
"""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any, Final

from controller.kubevirt.annotations import IN_SERVICE, VM_GENERATION
from controller.kubevirt.resources import MIGRATIONS, PAUSE, PVCS, VMI_REQUESTS, VMIS, VMS
from tests.fakes.garbage import collect_garbage
from tests.fakes.kubevirt import VM_CONTROLLER, FakeKubeVirt, owned_by
from tests.fakes.requests import AnyResource, Document, Request, refusal
from tests.fakes.rules import finalizers_of, wire
from tests.simulation.guests import Step, timeline
from tests.simulation.live import LiveUpdates
from tests.simulation.policies import relabel_later
from tests.simulation.server import Change, SimulatedServer

NODES: Final = ("node-1", "node-2", "node-3")
GUEST_FINALIZER: Final = "kubevirt.io/foregroundDeleteVirtualMachine"
LOST_AFTER_S: Final = 3.0
_FINAL: Final = ("Failed", "Succeeded")


class SimulatedKubeVirt(FakeKubeVirt):
    """Acts on all VMs and VMIs of one namespace. With `syncs_labels`, KubeVirt copies changed labels of a VM's template
    to its VMI, as since version 1.7.
    """

    def __init__(
        self, server: SimulatedServer, chance: Random, *, now: Callable[[], datetime], options: Any, namespace: str
    ) -> None:
        super().__init__(server, now=now, cdi=options.cdi, namespace=namespace)
        self.lost: set[str] = set()
        """The nodes that do not answer."""

        self._api = server
        self._chance = chance
        self._syncs_labels = options.syncs_labels
        self._planned: set[tuple[AnyResource, str]] = set()
        self._collecting = False
        self._starts_at: dict[str, float] = {}
        self._paused: set[str] = set()  # the UIDs of the VMIs that were paused by a request
        self._actor = "kubevirt"
        self._live = LiveUpdates(server, chance, self._after, options)
        server.on_change.append(self._notice)

    # What makes KubeVirt act

    def _notice(self, change: Change) -> None:
        relabel_later(self._api, change, self._after)
        if change.resource is MIGRATIONS and change.key.namespace == self._namespace and change.before is None:
            self._live.migrate(change.key)
        if change.key.namespace == self._namespace:
            self._act_later(change, change.key.name)
        self._maybe_collect(change)

    def _act_later(self, change: Change, name: str) -> None:
        if change.resource in (VMS, VMIS):
            self._later(VMS, name)
        if change.resource is VMIS and change.before is None:
            self._begin(name, change.last["metadata"]["uid"])
        if change.resource is VMIS and change.after is not None and "deletionTimestamp" in change.after["metadata"]:
            self._stop_guest(name)
        if change.resource is VMIS and change.after is not None and change.after["metadata"]["uid"] in self._paused:
            self._follow_user(name, change.after)
        if change.resource is PVCS and change.after is not None:
            self._after(0.5, self._grow, name)

    def _after(self, delay_s: float, act: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            with self._api.acting(self._actor):
                act(*args)

        self._api.loop.call_later(delay_s, run)

    def _later(self, resource: AnyResource, name: str) -> None:
        if (resource, name) not in self._planned:
            self._planned.add((resource, name))
            self._after(self._chance.uniform(0.02, 0.6), self._act_on, resource, name)

    def _act_on(self, resource: AnyResource, name: str) -> None:
        self._planned.discard((resource, name))
        vm = self._api.current(VMS, self._key(name))
        if vm is None:
            return
        if "deletionTimestamp" in vm["metadata"]:
            self._end(name, vm)
        else:
            self._control(name, vm)

    def _maybe_collect(self, change: Change) -> None:
        meta = change.last["metadata"]
        is_marked = "deletionTimestamp" in meta and any(
            each in ("foregroundDeletion", "orphan") for each in finalizers_of(change.last)
        )
        if not self._collecting and (change.after is None or is_marked or (change.before is None and change.is_ours)):
            self._collecting = True
            self._api.loop.call_later(self._chance.uniform(0.05, 1.0), self._collect)

    def _collect(self) -> None:
        self._collecting = False
        with self._api.acting("garbage collector"):
            collect_garbage(self._api)

    # The VM controller

    def _control(self, name: str, vm: Document) -> None:
        if VM_CONTROLLER not in finalizers_of(vm):
            kept = [VM_CONTROLLER, *finalizers_of(vm)]
            vm = self._api.change(VMS, self._key(name), {"metadata": {"finalizers": kept}})
        for template in vm["spec"].get("dataVolumeTemplates") or ():
            self._provide(template, owned_by(vm, "VirtualMachine"))
        vmi = self._vmi_of(vm)
        if vmi is None:
            if self._starts(vm) and self._api.current(VMIS, self._key(name)) is None:
                self._start_or_wait(name, vm)
        elif "deletionTimestamp" not in vmi["metadata"]:
            self._control_vmi(name, vm, vmi)
        self._report(name, self._api.document(VMS, self._key(name)))

    def _control_vmi(self, name: str, vm: Document, vmi: Document) -> None:
        phase, strategy = _phase(vmi), vm["spec"].get("runStrategy")
        ends = strategy == "Always" and phase in _FINAL
        ends = ends or (strategy == "RerunOnFailure" and phase == "Failed")
        if self._stops(vm, vmi) or ends:
            if ends and "Running" not in _phases(vmi):
                self._count_failure(name, vm)
            if ends and strategy == "RerunOnFailure":
                self._api.change(VMS, self._key(name), {"status": {"stateChangeRequests": [{"action": "Start"}]}})
            self._api.remove(VMIS, self._key(name))
        elif self._syncs_labels:
            wanted = (vm["spec"]["template"].get("metadata", {}).get("labels") or {}).get(IN_SERVICE)
            if wanted is not None and (vmi["metadata"].get("labels") or {}).get(IN_SERVICE) != wanted:
                self._api.change(VMIS, self._key(name), {"metadata": {"labels": {IN_SERVICE: wanted}}})

    def _start_or_wait(self, name: str, vm: Document) -> None:
        at, now = self._starts_at.get(vm["metadata"]["uid"], 0.0), self._api.loop.time()
        if at > now:
            self._planned.add((VMS, name))
            self._after(at - now, self._act_on, VMS, name)
        else:
            self._start(vm)

    def _count_failure(self, name: str, vm: Document) -> None:
        count = (vm.get("status") or {}).get("startFailure", {}).get("consecutiveFailCount", 0) + 1
        backoff_s = min(10.0 * count**2, 300.0) * self._chance.uniform(1.0, 1.5)
        self._starts_at[vm["metadata"]["uid"]] = self._api.loop.time() + backoff_s
        self._api.change(VMS, self._key(name), {"status": {"startFailure": {"consecutiveFailCount": count}}})

    def _vmi_of(self, vm: Document) -> Document | None:
        vmi = self._api.current(VMIS, self._key(vm["metadata"]["name"]))
        owners = (vmi or {}).get("metadata", {}).get("ownerReferences") or ()
        return vmi if any(each["uid"] == vm["metadata"]["uid"] for each in owners) else None

    def _report(self, name: str, vm: Document) -> None:
        vmi, status = self._vmi_of(vm), vm.get("status") or {}
        ready = _condition(vmi or {}, "Ready") or {"type": "Ready", "status": "False", "reason": "VMINotExists"}
        phase = _phase(vmi or {})
        pulled = _condition(vmi or {}, "Synchronized")
        failures = status.get("startFailure", {}).get("consecutiveFailCount", 0)
        word = "Starting"
        if vmi is None:
            word = "Stopped" if not self._starts(vm) else "CrashLoopBackOff" if failures else "Starting"
        elif "deletionTimestamp" in vmi["metadata"] and phase not in _FINAL:
            word = "Stopping"
        elif pulled is not None and pulled["status"] == "False":
            word = "ErrImagePull"
        elif phase == "Running":
            word = "Paused" if _condition(vmi or {}, "Paused") is not None else "Running"
        elif phase in _FINAL and not self._starts(vm):
            word = "Stopped"
        changed: Document = {"printableStatus": word}
        if vmi is not None or status.get("runStrategy"):
            changed["runStrategy"] = vm["spec"].get("runStrategy")
        conditions = _with_condition(status.get("conditions") or [], ready, wire(self._now()))
        if vmi is not None and "deletionTimestamp" not in vmi["metadata"]:
            self._live.note_generation(self._key(name), vm, vmi)
        if self._live.strategy:
            changed["desiredGeneration"] = vm["metadata"]["generation"]
            conditions = self._live.report(self._key(name), vm, vmi, conditions, wire(self._now()))
        if phase == "Running" and failures:
            changed["startFailure"] = None
        if conditions != status.get("conditions"):
            changed["conditions"] = conditions
        self._api.change(VMS, self._key(name), {"status": changed})

    def _start(self, vm: Document) -> None:
        inner, name = vm["spec"]["template"], vm["metadata"]["name"]
        noted, generation = inner.get("metadata", {}).get("annotations") or {}, str(vm["metadata"]["generation"])
        metadata = {
            "name": name,
            "labels": inner.get("metadata", {}).get("labels"),
            "annotations": {**noted, VM_GENERATION: generation},
            "ownerReferences": [owned_by(vm, "VirtualMachine")],
        }
        status = self._live.first_status(inner["spec"])
        vmi = self._put(VMIS, {"metadata": metadata, "spec": inner["spec"], "status": status})
        self._live.begin(vmi, inner)
        seen = {"stateChangeRequests": None, "runStrategy": vm["spec"].get("runStrategy")}
        self._api.change(VMS, self._key(name), {"status": seen})

    # Pauses

    def answer(self, request: Request) -> Document:
        """Carry out a request to virt-api."""
        if request.resource is not VMI_REQUESTS:
            return self._restart(request)
        vmi, name = self._api.document(VMIS, request.key), request.key.name
        is_paused, pauses = _condition(vmi, "Paused") is not None, request.subresource == PAUSE
        if _phase(vmi) != "Running" or is_paused is pauses:
            raise refusal(409, "Conflict", "VMI is not running, or it is so already")
        if _node(vmi) in self.lost:
            raise refusal(500, "InternalError", "virt-handler does not answer")
        # virt-handler tells it later.
        self._after(self._chance.uniform(0.02, 1.5), self._set_paused, name, vmi["metadata"]["uid"], pauses)
        return {}

    def _set_paused(self, name: str, uid: str, pauses: bool) -> None:
        vmi = self._api.current(VMIS, self._key(name))
        if vmi is None or vmi["metadata"]["uid"] != uid or _phase(vmi) != "Running":
            return
        (self._paused.add if pauses else self._paused.discard)(uid)
        others = [each for each in vmi["status"].get("conditions") or [] if each["type"] != "Paused"]
        paused = [{"type": "Paused", "status": "True", "reason": "PausedByUser"}] if pauses else []
        changed = self._api.change(VMIS, self._key(name), {"status": {"conditions": [*others, *paused]}})
        self.set_status(name, changed, Step(0, "Running", ready="accident" not in vmi["status"]))

    def _follow_user(self, name: str, vmi: Document) -> None:
        """A user has unpaused the VMI."""
        if _condition(vmi, "Paused") is None and self._api.actor == "user":
            self._after(0.1, self._set_paused, name, vmi["metadata"]["uid"], False)

    # The nodes

    def _begin(self, name: str, uid: str) -> None:
        vmi = self._api.document(VMIS, self._key(name))
        steps = timeline(image_of(vmi["spec"]), self._chance)
        self._after(steps[0].after_s, self._step, name, uid, steps)

    def _step(self, name: str, uid: str, steps: tuple[Step, ...]) -> None:
        vmi = self._present(name, uid)
        if vmi is None:
            return
        if _node(vmi) in self.lost:
            self._after(1.0, self._step, name, uid, steps)
            return
        step, *rest = steps
        if not vmi.get("status", {}).get("accident") and vmi.get("status", {}).get("phase") != "Failed":
            self.set_status(name, vmi, step)
        if rest:
            self._after(rest[0].after_s, self._step, name, uid, tuple(rest))

    def set_status(self, name: str, vmi: Document, step: Step) -> None:
        """Write the phase and the conditions of a VMI, as its node does."""
        now, status = wire(self._now()), vmi.get("status") or {}
        if vmi["metadata"]["uid"] in self._paused and step.phase == "Running" and step.reason != "PodTerminating":
            # Also if its node is lost: the Pod was not ready before, so Kubernetes changes nothing.
            step = step._replace(ready=False, reason="ReadinessGatesNotReady")
        ready: Document = {"type": "Ready", "status": "True" if step.ready else "False"}
        if not step.ready and step.reason:
            ready["reason"] = step.reason
        conditions = _with_condition(status.get("conditions") or [], ready, now)
        if step.message:
            pulled = {"type": "Synchronized", "status": "False", "reason": "ErrImagePull", "message": step.message}
            conditions = _with_condition(conditions, pulled, now)
        changed: Document = {"phase": step.phase, "conditions": conditions}
        if step.phase not in ("Pending", "Scheduling") and "nodeName" not in status:
            alive = [each for each in NODES if each not in self.lost] or NODES
            changed["nodeName"] = self._chance.choice(alive)
        if step.phase not in _phases(vmi):
            entry = {"phase": step.phase, "phaseTransitionTimestamp": now}
            changed["phaseTransitionTimestamps"] = [*status.get("phaseTransitionTimestamps", []), entry]
        self._api.change(VMIS, self._key(name), {"status": changed})

    def _stop_guest(self, name: str) -> None:
        if (VMIS, name) not in self._planned:
            self._planned.add((VMIS, name))
            self._after(0.1, self._mark_terminating, name)
            is_quick = self._chance.random() < 0.4
            self._after(0.02 if is_quick else self._chance.uniform(0.2, 3.0), self._finish, name)

    def _mark_terminating(self, name: str) -> None:
        """The Pod of a VMI that is being deleted ends. A lost node does not say so, but Kubernetes does."""
        vmi = self._api.current(VMIS, self._key(name))
        if vmi is not None and "deletionTimestamp" in vmi["metadata"] and _phase(vmi) == "Running":
            self.set_status(name, vmi, Step(0, "Running", reason="PodTerminating"))

    def _finish(self, name: str) -> None:
        """Remove a VMI that is being deleted, unless its node is lost."""
        self._planned.discard((VMIS, name))
        vmi = self._api.current(VMIS, self._key(name))
        if vmi is None or "deletionTimestamp" not in vmi["metadata"] or _node(vmi) in self.lost:
            return
        kept = [each for each in finalizers_of(vmi) if each != GUEST_FINALIZER]
        self._api.change(VMIS, self._key(name), {"metadata": {"finalizers": kept}})

    def lose_node(self, node: str) -> None:
        """The node stops to answer. Kubernetes notices this a few seconds later."""
        self.lost.add(node)
        self._after(LOST_AFTER_S, self._mark_lost, node)

    def _mark_lost(self, node: str) -> None:
        if node not in self.lost:
            return
        for name, vmi in sorted(self._on(node)):
            if _phase(vmi) == "Running" and "deletionTimestamp" not in vmi["metadata"]:
                self.set_status(name, vmi, Step(0, "Running", reason=""))

    def return_node(self, node: str, *, guests_died: bool) -> None:
        """The node answers again. Its guests run on, or they have died."""
        self.lost.discard(node)
        for name, vmi in sorted(self._on(node)):
            if "deletionTimestamp" in vmi["metadata"]:
                self._stop_guest(name)
            elif _phase(vmi) == "Running":
                step = Step(0, "Failed") if guests_died else Step(0, "Running", ready=True)
                self._after(0.1, self._recover, name, vmi["metadata"]["uid"], step)

    def _recover(self, name: str, uid: str, step: Step) -> None:
        vmi = self._present(name, uid)
        if vmi is not None:
            self.set_status(name, vmi, step)

    def _present(self, name: str, uid: str) -> Document | None:
        """The VMI with this UID, unless it is being deleted."""
        vmi = self._api.current(VMIS, self._key(name))
        if vmi is None or vmi["metadata"]["uid"] != uid or "deletionTimestamp" in vmi["metadata"]:
            return None
        return vmi

    def _on(self, node: str) -> list[tuple[str, Document]]:
        return [(name, vmi) for name, vmi in self._of(VMIS).items() if _node(vmi) == node]

    def accident(self, name: str, kind: str) -> None:
        """Let the guest of a VMI hang, crash, finish or recover."""
        vmi = self._api.current(VMIS, self._key(name))
        if vmi is None or _phase(vmi) != "Running" or "deletionTimestamp" in vmi["metadata"] or _node(vmi) in self.lost:
            return
        steps = {
            "hang": Step(0, "Running", reason="ContainersNotReady"),
            "crash": Step(0, "Failed"),
            "finish": Step(0, "Succeeded"),
            "recover": Step(0, "Running", ready=True),
        }
        with self._api.acting("guest"):
            self.set_status(name, vmi, steps[kind])
            flag = {"status": {"accident": kind if kind != "recover" else None}}
            self._api.change(VMIS, self._key(name), flag)

    def _grow(self, name: str) -> None:
        claim = self._api.current(PVCS, self._key(name))
        wanted = (claim or {}).get("spec", {}).get("resources", {}).get("requests")
        if claim is not None and wanted and claim.get("status", {}).get("capacity") != wanted:
            self._api.change(PVCS, self._key(name), {"status": {"capacity": wanted}})


def image_of(spec: Document) -> str:
    """The image of the first container disk of a VMI spec."""
    disks = (each.get("containerDisk") for each in spec.get("volumes") or ())
    return next((each["image"] for each in disks if each), "")


def _phase(vmi: Document) -> str:
    return vmi.get("status", {}).get("phase", "")


def _node(vmi: Document) -> str:
    return vmi.get("status", {}).get("nodeName", "")


def _phases(vmi: Document) -> set[str]:
    return {each["phase"] for each in vmi.get("status", {}).get("phaseTransitionTimestamps") or ()}


def _condition(document: Document, kind: str) -> Document | None:
    conditions = document.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def _with_condition(conditions: list[Document], new: Document, now: str) -> list[Document]:
    """The conditions with the new one. Its time changes only with its status or its reason, as in KubeVirt."""
    old = next((each for each in conditions if each["type"] == new["type"]), None)
    is_same = old is not None and (old["status"], old.get("reason")) == (new["status"], new.get("reason"))
    kept = old["lastTransitionTime"] if old is not None and is_same else now
    rest = [each for each in conditions if each["type"] != new["type"]]
    return [*rest, {**new, "lastTransitionTime": kept}]
