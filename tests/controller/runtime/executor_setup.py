"""An executor on the fake API server, builders of its actions, and what another client does between its requests."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from controller.kubevirt.resources import DATA_VOLUMES, VMIS
from controller.runtime.actions import (
    Action,
    Confirm,
    Create,
    Delete,
    Outcome,
    Patch,
    Plan,
    Rejected,
    RemoveOwnerReference,
    Stage,
    ThreeWayMerge,
)
from controller.runtime.execute.births import Owner
from controller.runtime.execute.deletes import NO_JUDGE, Judge
from controller.runtime.execute.executor import Executor
from controller.runtime.settle.cache_check import CacheCheck
from controller.runtime.settle.expectations import Expectations
from informers.errors import ApiError
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, Lost, Request
from tests.fakes.virtual_time import now

OWNER = ObjectKey("default", "web")
OWNER_UID = "uid-of-the-set"


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def document(name: str, *, owner_uid: str = OWNER_UID, **metadata: object) -> dict[str, object]:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "Set", "name": "web", "uid": owner_uid, "controller": True}
    meta = {"name": name, "namespace": "default", "ownerReferences": [owner], **metadata}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta}


def create(name: str = "vm") -> Create:
    body = msgspec.json.encode(document(name))
    return Create(resource=VMIS, key=key(name), body=body, owner_uid=OWNER_UID, why="missing")


def creates(number: int) -> tuple[Create, ...]:
    return tuple(create(f"vm-{index:03}") for index in range(number))


def delete(name: str = "vm", uid: str = "a") -> Delete:
    return Delete(resource=VMIS, key=key(name), uid=uid, why="surplus")


def patch(name: str = "vm", **metadata: object) -> Patch:
    body = msgspec.json.encode({"metadata": metadata})
    return Patch(resource=VMIS, key=key(name), body=body, type=PatchType.MERGE, why="test")


def confirm(uid: str, name: str = "vm") -> Confirm:
    return Confirm(resource=VMIS, key=key(name), uid=uid, why="before adopting 1")


def kinds(outcomes: Iterable[Outcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


class Counts(Counter[tuple[str, str]]):
    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        assert controller == "test"
        self[action, outcome] += 1


class ExecutorSetup:
    """An executor, its server, and a cache that receives events only when a test says so."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.cache = LaggingCache(self.server, VMIS)
        self.check = CacheCheck(self.server)
        self.expectations = Expectations(
            {VMIS: self.cache.store}, now=now, gave_up=lambda: None, doubt=self.check.doubt
        )
        self.tally = Counts()
        self.executor = self.new_executor()

    def new_executor(self, judge: Judge = NO_JUDGE) -> Executor:
        return Executor(
            self.server, self.expectations, controller="test", instruments=self.tally, judge=judge, check=self.check
        )

    async def carry_out(self, *stages: Iterable[Action] | Stage) -> tuple[Outcome, ...]:
        plan = Plan(stages=tuple(stage if isinstance(stage, Stage) else Stage(tuple(stage)) for stage in stages))
        outcomes = await self.executor.carry_out(Owner(OWNER, OWNER_UID), plan)
        assert [outcome.action for outcome in outcomes] == list(plan.actions), "one outcome for each, in their order"
        return outcomes

    async def outcome_of(self, action: Action) -> Outcome:
        [outcome] = await self.carry_out([action])
        return outcome

    async def rejected(self, action: Action) -> Rejected:
        outcome = await self.outcome_of(action)
        assert isinstance(outcome, Rejected)
        return outcome

    async def resolve(self) -> ApiError | None:
        return await self.executor.resolve(OWNER, OWNER_UID)

    @property
    def unresolved(self) -> tuple[Action, ...]:
        return self.expectations.unresolved(OWNER, OWNER_UID)

    @property
    def settled(self) -> bool:
        return self.expectations.settled(OWNER, OWNER_UID)

    def fail(self, fault: Fault, *, verb: str = "", name: str = "") -> None:
        """Make all requests with this verb and name fail.

        An empty verb means all verbs. An empty name means all names.
        """

        def fault_for(request: Request) -> Fault | None:
            meant = verb in ("", request.verb) and name in ("", request.key.name)
            return fault if meant else None

        self.server.fault_for = fault_for

    def heal(self) -> None:
        self.server.fault_for = lambda request: None

    async def lose(self, *actions: Action, happened: bool = True) -> None:
        """Lose the answers of these writes, and forget the requests."""
        self.fail(Lost.AFTER if happened else Lost.BEFORE)
        for action in actions:
            assert kinds([await self.outcome_of(action)]) == ["Unknown"]
        self.heal()
        self.server.requests.clear()

    def add(self, name: str = "vm", **kwargs: object) -> str:
        """Create a VMI that the cache shows. Returns its UID."""
        made = self.server.put(VMIS, document(name, **kwargs))
        self.cache.catch_up()
        return made["metadata"]["uid"]

    @property
    def updates(self) -> int:
        return sum(request.verb == "update" for request in self.server.requests)

    @property
    def names(self) -> list[str]:
        return [vmi.metadata.name for vmi in self.server.objects(VMIS)]

    @property
    def sent(self) -> list[str]:
        return [f"{request.verb} {request.key.name}" for request in self.server.requests]


VM_UID = "uid-of-the-vm"
FINALIZER = "pool.kubevirt.io/finalizer"


def reference(uid: str, **fields: object) -> dict[str, object]:
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": f"name-of-{uid}", "uid": uid, **fields}


OWN = reference(VM_UID, controller=True, blockOwnerDeletion=True)
OTHERS = [
    reference("first", controller=False, blockOwnerDeletion=False),
    reference("second"),
    reference("third", blockOwnerDeletion=True),
]


def put_disk(setup: ExecutorSetup, *owners: dict[str, object], name: str = "disk", resource: Any = DATA_VOLUMES) -> str:
    """Create a DataVolume or a PersistentVolumeClaim with these owners. Returns its UID."""
    made = setup.server.put(resource, {"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
    return made["metadata"]["uid"]


def owners_of(setup: ExecutorSetup) -> list[dict[str, object]]:
    disk = setup.server.find(DATA_VOLUMES, key("disk"))
    assert disk is not None
    return [msgspec.to_builtins(owner) for owner in disk.metadata.owner_references or ()]


def disown(name: str = "disk", owner_uid: str = VM_UID, resource: Any = DATA_VOLUMES) -> RemoveOwnerReference:
    return RemoveOwnerReference(resource=resource, key=key(name), owner_uid=owner_uid, why="its state is kept")


def three_way_merge(uid: str, name: str = "vm") -> ThreeWayMerge:
    """A merge from a template with the value 1 to a template with the value 2."""
    old, new = (msgspec.json.encode({"metadata": {}, "spec": {"template": says}}) for says in (1, 2))
    return ThreeWayMerge(resource=VMIS, key=key(name), uid=uid, old=old, new=new, why="newer")


def put_vm(setup: ExecutorSetup, name: str = "vm", *, says: object = 1, **metadata: object) -> str:
    made = setup.server.put(VMIS, {**document(name, **metadata), "spec": {"template": says, "own": "x"}})
    setup.cache.catch_up()
    return made["metadata"]["uid"]


def spec_of(setup: ExecutorSetup) -> dict[str, object]:
    return setup.server.document(VMIS, key("vm"))["spec"]


def when(verb: str, act: Callable[[], object], *, times: int = 1) -> Callable[[Request], None]:
    """Make another client act when a request with this verb arrives. This happens for the next `times` requests."""
    left = times

    def fault_for(request: Request) -> None:
        nonlocal left
        if request.verb == verb and left:
            left -= 1
            act()

    return fault_for


def meddle(setup: ExecutorSetup, resource: Any, name: str) -> Callable[[], object]:
    """Let another client change a label of the object, each time to a new value."""
    return lambda: setup.server.change(resource, key(name), {"metadata": {"labels": {"n": str(setup.server.version)}}})
