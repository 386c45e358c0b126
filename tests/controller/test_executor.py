"""How a plan is carried out: order, slow start, what each answer means, and what becomes of lost ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from controller.executor import PARALLEL, Executor
from controller.expectations import Expectations
from controller.kubevirt.resources import VMIS
from controller.planning import (
    Action,
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Outcome,
    Patch,
    PatchType,
    Plan,
    Refused,
    Skipped,
    Stage,
    Unknown,
    Vanished,
)
from informers.errors import ApiError, Forbidden, TransportError
from informers.meta import ObjectKey
from tests.builders import REPLICASETS
from tests.memoryapi import Fault, Garbled, LaggingCache, Lost, MemoryApi, Request, refusal

pytestmark = pytest.mark.looptime

OWNER = ObjectKey("default", "web")
OWNER_UID = "uid-of-the-set"
UNREACHABLE = TransportError("cannot connect: Connection refused", sent=False)
QUOTA_FULL = refusal(403, "Forbidden", "exceeded quota: few")
BUSY = refusal(429, "TooManyRequests", "too many requests", retry_after_s=7)
INVALID = refusal(422, "Invalid", "spec.domain: Required value")


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def reference(uid: str) -> dict[str, object]:
    return {"apiVersion": "kubevirt.io/v1", "kind": "Set", "name": "web", "uid": uid, "controller": True}


def document(name: str, *, owner_uid: str = OWNER_UID, **metadata: object) -> dict[str, object]:
    meta = {"name": name, "namespace": "default", "ownerReferences": [reference(owner_uid)], **metadata}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta}


def create(name: str) -> Create:
    body = msgspec.json.encode(document(name))
    return Create(resource=VMIS, key=key(name), body=body, owner_uid=OWNER_UID, why="missing")


def creates(number: int) -> tuple[Create, ...]:
    return tuple(create(f"vm-{index:03}") for index in range(number))


class World:
    """An executor, the API that it writes to, and a cache that hears of nothing by itself."""

    def __init__(self) -> None:
        self.api = MemoryApi(has_status=(REPLICASETS,), finalizers={})
        self.cache = LaggingCache(self.api, VMIS)
        self.gave_up = 0
        self.acted: Counter[tuple[str, str]] = Counter()
        clock = asyncio.get_running_loop().time
        self.expectations = Expectations({VMIS: self.cache.store}, now=clock, gave_up=self._note_giving_up)
        self.executor = Executor(self.api, self.expectations, controller="test", instruments=self)

    def acted_on(self, controller: str, *, action: str, outcome: str) -> None:
        self.acted[action, outcome] += 1

    def _note_giving_up(self) -> None:
        self.gave_up += 1

    async def carry_out(self, *stages: Iterable[Action] | Stage) -> tuple[Outcome, ...]:
        plan = Plan(stages=tuple(stage if isinstance(stage, Stage) else Stage(tuple(stage)) for stage in stages))
        outcomes = await self.executor.carry_out(OWNER, OWNER_UID, plan)
        assert [outcome.action for outcome in outcomes] == list(plan.actions), "one outcome for each, in their order"
        return outcomes

    async def settle(self) -> ApiError | None:
        return await self.executor.settle(OWNER, OWNER_UID)

    def doubts(self) -> tuple[Action, ...]:
        return self.expectations.doubts(OWNER, OWNER_UID)

    def settled(self) -> bool:
        return self.expectations.settled(OWNER, OWNER_UID)

    def fail(self, fault: Fault, *, verb: str = "", name: str = "") -> None:
        """Have all requests of this verb for this object fail; all there are, without them."""

        def disturb(request: Request) -> Fault | None:
            return fault if request.verb == (verb or request.verb) and request.key.name == (name or request.key.name) else None

        self.api.disturb = disturb

    def heal(self) -> None:
        self.api.disturb = lambda request: None

    def add(self, name: str, **kwargs: object) -> Delete:
        """Have a VMI, known to the cache, and give what deletes it."""
        made = self.api.put(VMIS, document(name, **kwargs))
        self.cache.catch_up()
        return self.delete(name, uid=made["metadata"]["uid"])

    def delete(self, name: str, uid: str) -> Delete:
        return Delete(resource=VMIS, key=key(name), uid=uid, why="surplus")

    def patch(self, name: str, **metadata: object) -> Patch:
        body = msgspec.json.encode({"metadata": metadata})
        return Patch(resource=VMIS, key=key(name), body=body, type=PatchType.MERGE, why="test")

    def names(self) -> list[str]:
        return [vmi.metadata.name for vmi in self.api.objects(VMIS)]

    def sent(self) -> list[str]:
        return [f"{request.verb} {request.key.name}" for request in self.api.requests]


World.acted = property()  # placeholder
