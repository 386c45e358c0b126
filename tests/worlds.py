"""A namespace with one replica set, as the server has it: plans are carried out on it, and its VMIs live on.

A model for properties of plans, where what matters is the state it ends in. It answers as the executor would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance, VMIStatus
from controller.kubevirt.vmis import is_active
from controller.replicaset.plan import plan
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.status import next_status
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
    Skipped,
)
from controller.runtime.status import status_patch
from informers.errors import AlreadyExists, ApiError, Conflict
from informers.meta import ObjectMeta, controller_of
from tests.builders import NOW, snapshot


class World:
    def __init__(self, owner: ReplicaSet, vmis: Iterable[VirtualMachineInstance] = (), *, burst: int = 250) -> None:
        self.owner = owner
        self.vmis = {vmi.metadata.name: vmi for vmi in vmis}
        self.burst = burst
        self.log: list[Action] = []
        self._numbers = count(1000)

    @property
    def active(self) -> list[VirtualMachineInstance]:
        uid = self.owner.metadata.uid
        owned = [vmi for vmi in self.vmis.values() if (by := controller_of(vmi.metadata)) and by.uid == uid]
        return [vmi for vmi in owned if is_active(vmi)]

    def see(self) -> Snapshot:
        return snapshot(self.owner, self.vmis.values(), burst=self.burst)

    def run_pass(self) -> tuple[Plan, tuple[Outcome, ...]]:
        """One pass as the shell runs it: plan, outcomes, status."""
        todo = plan(self.see())
        outcomes = self.carry_out(todo.stages)
        self.write_status(outcomes)
        return todo, outcomes

    def write_status(self, outcomes: tuple[Outcome, ...]) -> bool:
        patch = status_patch(self.owner, next_status(self.see(), outcomes))
        if patch is None:
            return False
        fields = msgspec.json.decode(patch)["status"]
        status = msgspec.convert({key: value for key, value in fields.items() if value is not None}, ReplicaSetStatus)
        self.owner = replace(self.owner, status=status)
        return True

    def carry_out(self, stages: Sequence, *, writes: int | None = None) -> tuple[Outcome, ...]:
        """Do what the stages say; only the first `writes` of it, as if the process had been killed then."""
        outcomes: list[Outcome] = []
        going = True
        for stage in stages:
            results: list[Outcome] = []
            for action in stage.actions:
                stopped = writes is not None and len(outcomes) + len(results) >= writes
                results.append(self.perform(action) if going and not stopped else Skipped(action))
            outcomes += results
            going = going and (not stage.essential or not any(isinstance(r, Rejected | Skipped) for r in results))
        return tuple(outcomes)

    def perform(self, action: Action) -> Outcome:
        self.log.append(action)
        held = self.vmis.get(action.key.name)
        match action:
            case Confirm():
                return Done(action) if self.owner.metadata.uid == action.uid else Rejected(action, _conflict())
            case Create():
                return self._create(action, held)
            case Delete():
                if held is None or held.metadata.uid != action.uid:
                    return Missing(action)
                self._change(held, deletion_timestamp=NOW)
                return Done(action)
            case Patch():
                return self._patch(action, held)

    def _create(self, action: Create, held: VirtualMachineInstance | None) -> Outcome:
        if held is not None:
            by = controller_of(held.metadata)
            if by is not None and by.uid == action.owner_uid:
                return AlreadyThere(action)
            return Rejected(action, AlreadyExists("already exists", code=409))
        made = VMIS.decode(action.body)
        assert made.metadata.key == action.key
        self.vmis[action.key.name] = made
        self._change(made, uid=f"made-{next(self._numbers)}", creation_timestamp=NOW)
        return Done(action)

    def _patch(self, action: Patch, held: VirtualMachineInstance | None) -> Outcome:
        if held is None:
            return Missing(action)
        patch = msgspec.json.decode(action.body, type=VirtualMachineInstance).metadata
        if (patch.uid, patch.resource_version) != (held.metadata.uid, held.metadata.resource_version):
            return Rejected(action, _conflict())
        self._change(held, owner_references=patch.owner_references)
        return Done(action)

    def live_on(self) -> None:
        """What is being deleted goes, what finished stays so, and the rest comes up."""
        for name, vmi in list(self.vmis.items()):
            if vmi.metadata.deletion_timestamp is not None:
                del self.vmis[name]
            elif is_active(vmi):
                ready = Condition(type="Ready", status="True", last_transition_time=NOW)
                self.vmis[name] = replace(vmi, status=VMIStatus("Running", "node-1", (ready,)))

    def _change(self, vmi: VirtualMachineInstance, **fields: object) -> None:
        metadata: ObjectMeta = replace(vmi.metadata, resource_version=str(next(self._numbers)), **fields)
        self.vmis[metadata.name] = replace(vmi, metadata=metadata)


def _conflict() -> ApiError:
    return Conflict("the object has been modified", code=409)
