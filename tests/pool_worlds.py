"""A namespace with one pool, as the server has it: plans are carried out on it, and everybody else plays their part.

The VM controller makes disks and VMIs and lets go of a VM once its VMI is gone; the garbage collector collects. A
model for properties of plans, where what matters is the state it ends in. It answers as the executor would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, PVCS, VMIS, VMS
from controller.pool.plan import plan
from controller.pool.snapshot import Limits, Snapshot, take_snapshot
from controller.pool.status import next_status, outcome_notices
from controller.runtime.plan import (
    Action,
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Plan,
    Rejected,
    RemoveOwnerReference,
    Skipped,
    Stage,
    ThreeWayMerge,
)
from controller.runtime.status import status_patch
from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from informers.objects import PatchType
from tests import pool_builders
from tests.pool_api import NAMESPACE, Api, Json, finalizers, later, references_to
from tests.pool_builders import POOLS

VM_CONTROLLER = "kubevirt.io/virtualMachineControllerFinalize"
BROKEN = "broken"
"""The image of a VM that does not come up."""


class World(Api):
    """`pool` is how it begins. `refuses` tells which writes the server answers with no."""

    def __init__(self, pool: Pool, *, burst: int = 250, revision_history: int = 5, cdi: bool = True) -> None:
        super().__init__()
        self.limits = Limits(burst, revision_history)
        self.cdi = cdi
        self.log: list[Action] = []
        self.refuses: Callable[[Action], bool] = lambda action: False
        document = json.loads(msgspec.json.encode(pool))
        self.name = pool.metadata.name
        self.of(POOLS.plural)[self.name] = without_nulls(document)

    @property
    def pool(self) -> Json:
        return self.get(POOLS.plural, self.name)

    @property
    def is_gone(self) -> bool:
        return self.name not in self.of(POOLS.plural)

    @property
    def vms(self) -> dict[str, Json]:
        return self.of(VMS.plural)

    @property
    def vmis(self) -> dict[str, Json]:
        return self.of(VMIS.plural)

    @property
    def revisions(self) -> dict[str, Json]:
        return self.of(CONTROLLER_REVISIONS.plural)

    @property
    def claims(self) -> dict[str, Json]:
        return self.of(PVCS.plural)

    def members(self) -> list[str]:
        """The names of the VMs that the pool controls, those that are being deleted included."""
        return sorted(name for name, vm in self.vms.items() if references_to(vm, self.pool["metadata"]))

    def running(self) -> list[str]:
        return [name for name in self.members() if "deletionTimestamp" not in self.vms[name]["metadata"]]

    def template(self) -> Json:
        """The VM spec that the pool has in its template."""
        return self.pool["spec"]["virtualMachineTemplate"]["spec"]

    def see(self, *, settled: bool = True) -> Snapshot:
        documents = {
            resource: [resource.decode(msgspec.json.encode(each)) for each in self.of(resource.plural).values()]
            for resource in (POOLS, VMS, VMIS, CONTROLLER_REVISIONS)
        }
        held = pool_builders.stores(
            documents[POOLS][0], documents[VMS], vmis=documents[VMIS], revisions=documents[CONTROLLER_REVISIONS]
        )
        seen = take_snapshot(
            held,
            documents[POOLS][0].metadata.key,
            now=self.now,
            settled=settled,
            limits=self.limits,
            pools=POOLS,
        )
        assert seen is not None
        return seen

    def run_pass(self) -> tuple[Plan, tuple[Outcome, ...]]:
        """One pass as the shell runs it: plan, outcomes, status."""
        todo = plan(self.see())
        outcomes = self.carry_out(todo.stages)
        outcome_notices(outcomes)
        self.write_status(outcomes)
        return todo, outcomes

    def write_status(self, outcomes: tuple[Outcome, ...]) -> bool:
        if self.is_gone:
            return False
        seen = self.see()
        body = status_patch(seen.owner, next_status(seen, outcomes))
        if body is not None:
            self.patch(POOLS.plural, self.name, body)
        return body is not None

    def come_to_rest(self, *, passes: int = 120, seconds: float = 5) -> None:
        """Passes, and time for everybody else between them, until neither finds anything to do."""
        for _ in range(passes):
            before = self._facts()
            if not self.is_gone:
                self.run_pass()
            self.live_on(seconds)
            waits = None if self.is_gone else plan(self.see()).requeue_after_s
            if before == self._facts() and waits is None:
                return
        raise AssertionError(f"not at rest after {passes} passes: {plan(self.see())}")

    def carry_out(self, stages: Sequence[Stage], *, writes: int | None = None) -> tuple[Outcome, ...]:
        """Do what the stages say; only the first `writes` of it, as if the process had been killed then."""
        outcomes: list[Outcome] = []
        going = True
        for stage in stages:
            blocked = {
                each.action.owner_uid
                for each in outcomes
                if isinstance(each.action, RemoveOwnerReference) and failed(each)
            }
            results: list[Outcome] = []
            for action in stage.actions:
                stopped = writes is not None and len(outcomes) + len(results) >= writes
                waits = isinstance(action, Patch) and action.after_owner in blocked
                results.append(self.perform(action) if going and not stopped and not waits else Skipped(action))
            outcomes += results
            going = going and (not stage.essential or not any(map(failed, results)))
        return tuple(outcomes)

    def perform(self, action: Action) -> Outcome:
        self.log.append(action)
        if self.refuses(action):
            return Rejected(action, Forbidden("no", code=403))
        try:
            return self._perform(action)
        except NotFound as error:
            assert not isinstance(action, Create)
            return Rejected(action, error) if isinstance(action, Confirm) else Missing(action)
        except Conflict as error:
            return Missing(action) if isinstance(action, Delete) else Rejected(action, error)
        except ApiError as error:
            return Rejected(action, error)

    def _perform(self, action: Action) -> Outcome:
        plural, name = action.resource.plural, action.key.name
        assert action.key.namespace == NAMESPACE
        match action:
            case Create():
                return self._create(action)
            case Delete():
                self.delete(plural, name, uid=action.uid, policy="Foreground" if action.foreground else "Background")
            case Patch():
                self.patch(plural, name, action.body, kind="json" if action.type is PatchType.JSON else "merge")
            case RemoveOwnerReference():
                held = self.get(plural, name)
                kept = [
                    each for each in held["metadata"].get("ownerReferences") or [] if each["uid"] != action.owner_uid
                ]
                self.patch(plural, name, msgspec.json.encode({"metadata": {"ownerReferences": kept}}))
            case ThreeWayMerge():
                held = self.get(plural, name)
                if held["metadata"]["uid"] != action.uid or "deletionTimestamp" in held["metadata"]:
                    return Missing(action)
                if body := VM_RULES.merge(msgspec.json.encode(held), action.old, action.new):
                    self.patch(plural, name, body)
            case Confirm():
                if self.get(plural, name)["metadata"]["uid"] != action.uid:
                    return Rejected(action, Conflict("another", code=409))
        return Done(action)

    def _create(self, action: Create) -> Outcome:
        try:
            self.create(action.resource.plural, json.loads(action.body))
        except AlreadyExists as error:
            held = self.get(action.resource.plural, action.key.name)
            ours = [each for each in references_to(held, {"uid": action.owner_uid}) if each.get("controller")]
            return AlreadyThere(action) if ours else Rejected(action, error)
        return Done(action)

    def change(self, **fields: Any) -> None:
        """A user edits the pool's spec."""
        meta = self.pool["metadata"]
        self.pool["spec"] = without_nulls({**self.pool["spec"], **fields})
        meta["generation"] = (meta.get("generation") or 0) + 1
        self.touch(self.pool)

    def annotate(self, **annotations: str) -> None:
        self.pool["metadata"].setdefault("annotations", {}).update(annotations)
        self.touch(self.pool)

    def delete_by_user(self, name: str, *, foreground: bool = False) -> None:
        self.delete(VMS.plural, name, policy="Foreground" if foreground else "Background")

    def delete_pool(self, policy: str = "Background") -> None:
        self.delete(POOLS.plural, self.name, policy=policy)

    def live_on(self, seconds: float = 5) -> None:
        """Everybody but us acts once: VM controller, nodes, garbage collector."""
        self.now = later(self.now, seconds)
        for name, vmi in list(self.vmis.items()):
            if "deletionTimestamp" in vmi["metadata"]:
                vmi["metadata"]["finalizers"] = []
                self.put(VMIS.plural, vmi)
            elif name in self.vms and not _is_ready(vmi) and not _is_broken(vmi):
                vmi["status"] = {"phase": "Running", "conditions": [self._ready(holds=True)]}
                self.touch(vmi)
        for name in list(self.vms):
            self._control(name)
        self.collect_garbage()

    def _control(self, name: str) -> None:
        """What KubeVirt's VM controller does about one VM."""
        vm = self.vms[name]
        meta, spec = vm["metadata"], vm["spec"]
        vmi = self.vmis.get(name)
        if "deletionTimestamp" in meta:
            if vmi is not None:
                if "deletionTimestamp" not in vmi["metadata"]:
                    self.delete(VMIS.plural, name)
            elif VM_CONTROLLER in finalizers(meta):
                meta["finalizers"].remove(VM_CONTROLLER)
                self.put(VMS.plural, vm)
            return
        if VM_CONTROLLER not in finalizers(meta):
            meta["finalizers"] = [VM_CONTROLLER, *finalizers(meta)]
            self.touch(vm)
        for template in spec.get("dataVolumeTemplates") or ():
            self._provide(template["metadata"]["name"], _reference(vm, "VirtualMachine"))
        if vmi is None and spec.get("runStrategy") == "Always":
            self._start(vm)
        elif vmi is not None and spec.get("runStrategy") == "Halted" and "deletionTimestamp" not in vmi["metadata"]:
            self.delete(VMIS.plural, name)
        self._report(vm)

    def _provide(self, name: str, owner: Json) -> None:
        """A disk of this name, made or adopted: a DataVolume whose claim it owns, or the claim alone."""
        plural = DATA_VOLUMES.plural if self.cdi else PVCS.plural
        disk = self.of(plural).get(name)
        if disk is None and name in self.claims:
            plural, disk = PVCS.plural, self.claims[name]
        if disk is None:
            disk = self.create(plural, {"metadata": {"name": name, "ownerReferences": [owner]}})
            if self.cdi:
                reference = _reference(disk, "DataVolume")
                self.create(PVCS.plural, {"metadata": {"name": name, "ownerReferences": [reference]}})
        elif not disk["metadata"].get("ownerReferences") and "deletionTimestamp" not in disk["metadata"]:
            disk["metadata"]["ownerReferences"] = [owner]
            self.touch(disk)

    def _start(self, vm: Json) -> None:
        inner = vm["spec"]["template"]
        metadata = {
            "name": vm["metadata"]["name"],
            "labels": dict(inner.get("metadata", {}).get("labels") or {}),
            "ownerReferences": [_reference(vm, "VirtualMachine")],
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
        }
        status = {"phase": "Scheduling", "conditions": [self._ready(holds=False)]}
        self.create(VMIS.plural, {"metadata": metadata, "spec": inner["spec"], "status": status})

    def _report(self, vm: Json) -> None:
        vmi = self.vmis.get(vm["metadata"]["name"])
        ready = vmi is not None and _is_ready(vmi)
        word = "Running" if ready else "Stopped" if vmi is None else "ErrImagePull" if _is_broken(vmi) else "Starting"
        held = vm.get("status") or {}
        if held.get("printableStatus") != word:
            vm["status"] = {"printableStatus": word, "conditions": [self._ready(holds=ready)]}
            self.touch(vm)

    def _ready(self, *, holds: bool) -> Json:
        moment = self.now.isoformat().replace("+00:00", "Z")
        return {"type": "Ready", "status": "True" if holds else "False", "lastTransitionTime": moment}

    def _facts(self) -> bytes:
        return msgspec.json.encode(self.objects, order="deterministic")


def failed(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected | Skipped)


def without_nulls(document: Any) -> Any:
    """As the API server keeps it."""
    if isinstance(document, dict):
        return {name: without_nulls(value) for name, value in document.items() if value is not None}
    return document


def _is_ready(vmi: Json) -> bool:
    return any(each["status"] == "True" for each in vmi.get("status", {}).get("conditions") or ())


def _is_broken(vmi: Json) -> bool:
    volumes = vmi.get("spec", {}).get("volumes") or ()
    return any(each.get("containerDisk", {}).get("image") == BROKEN for each in volumes)


def _reference(owner: Json, kind: str) -> Json:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
