"""The guarantees of a replica set under random faults: lost, rejected and late requests, stale caches, and restarts.

A ledger is the test's record of the server and of the cache. The ledger does not use the controller's expectations. The
ledger checks each write at the moment of the write.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import looptime
import msgspec
from hypothesis import given, settings

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_deleting
from controller.runtime.result import After, Report
from informers.errors import TransportError
from informers.meta import controller_of, labels_of
from informers.store import Change, Removed
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import KEY, LABELS, ReplicaSetSimulation, replicaset_document, vmi_document
from tests.fakes.requests import Document, FailedAfter, Fault, Garbled, Lost, Request, refusal

FAULTS = st.sampled_from(
    [
        *[None] * 6,
        *[Lost.AFTER] * 3,
        *[Lost.BEFORE] * 2,
        Garbled(),
        TransportError("cannot connect", sent=False),
        FailedAfter(refusal(500, "InternalError", "etcdserver: request timed out")),
        FailedAfter(refusal(502, "", "the server answered HTTP 502")),
        FailedAfter(refusal(504, "Timeout", "request did not complete within the allotted timeout")),
        refusal(503, "ServiceUnavailable", "no endpoints"),
        refusal(429, "TooManyRequests", "too many requests", retry_after_s=1),
        refusal(422, "Invalid", "denied by a policy"),
    ]
)

PROGRESS = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([0, 0, 1]))
"""The number of VMI events and of set events that the caches receive during one request."""

ARGUMENTS = {
    # The faults of its requests, and the progress during each request. Later requests succeed without progress.
    "reconcile": st.tuples(st.lists(FAULTS, max_size=6), st.lists(PROGRESS, max_size=6)),
    "hear": st.tuples(st.integers(0, 2), st.integers(0, 1)),
    "scale": st.tuples(st.integers(0, 5)),
    "pause": st.tuples(st.booleans()),
    "finish": st.tuples(st.integers(0, 9)),
    "delete": st.tuples(st.integers(0, 9)),
    "detach": st.tuples(st.integers(0, 9)),
    "let go": st.tuples(st.integers(0, 9)),
    "leave an orphan": st.tuples(st.integers(0, 3)),
    "recreate the set": st.tuples(st.integers(0, 4)),
    "relist": st.tuples(),
    "restart": st.tuples(),
    "come to rest": st.tuples(),
}

OFTEN = {"reconcile": 12, "hear": 8, "scale": 4, "finish": 2, "delete": 2}


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    what = draw(st.sampled_from([what for what in ARGUMENTS for _ in range(OFTEN.get(what, 1))]))
    return (what, *draw(ARGUMENTS[what]))


class Ledger:
    """The test's record of the writes that the cache does not show yet."""

    def __init__(self) -> None:
        self.made: dict[str, set[str]] = {}
        """For each owner, the created VMIs that still exist but are not in the cache yet."""

        self.deleted: set[str] = set()
        """The VMIs that the controller deleted. In the cache, they are not terminating yet."""

        self.ever_deleted: set[str] = set()

        self.owner_uid = ""
        self.creatable = 0
        self.deletable = 0

    def show(self, uid: str, *, deleting: bool) -> None:
        for made in self.made.values():
            made.discard(uid)
        if deleting:
            self.deleted.discard(uid)

    def show_everything(self) -> None:
        self.made.clear()
        self.deleted.clear()

    def make(self, uid: str, owner_uid: str) -> None:
        made = self.made.setdefault(owner_uid, set())
        made.add(uid)
        assert owner_uid == self.owner_uid
        assert len(made) <= self.creatable, "guarantee 2: more creates than the cache called for"

    def delete(self, uid: str, owner_uid: str, *, deleting: bool) -> None:
        """Record a delete request. If `deleting` is true, the VMI was already terminating, so the request changes
        nothing.
        """
        assert owner_uid == self.owner_uid, "guarantee 3: somebody else's"
        assert uid not in self.ever_deleted, "R9: a second delete"
        self.ever_deleted.add(uid)
        if not deleting:
            self.deleted.add(uid)
        assert len(self.deleted) <= self.deletable, "R9: more deletes than the cache called for"


class Scenario:
    """One set. The set, its VMIs, the answers to requests, and the caches change at random."""

    def __init__(self, *, replicas: int, burst: int, finalizers: bool) -> None:
        self.ledger = Ledger()
        self.simulation = ReplicaSetSimulation(burst=burst, finalizers=finalizers, vmi_handler=self.show)
        self.simulation.server.on_write = self.judge
        self.simulation.process.counts.on_plan = self.note_what_the_caches_call_for
        self.simulation.server.put(REPLICASETS, replicaset_document(replicas=replicas))
        self.simulation.process.catch_up()

    async def play(self, story: list[tuple[Any, ...]]) -> None:
        for what, *arguments in story:
            match what:
                case "reconcile":
                    await self.run_pass(*map(iter, arguments))
                case "come to rest":
                    await self.come_to_rest()
                case "finish" | "delete" | "detach" | "let go":
                    self.touch_a_vmi(what, *arguments)
                case _:
                    self.happen(what, *arguments)
        await self.come_to_rest()

    def show(self, change: Change[VirtualMachineInstance]) -> None:
        removed = isinstance(change, Removed)
        vmi = change.last_known if removed else change.new
        self.ledger.show(vmi.metadata.uid, deleting=removed or is_deleting(vmi))

    def note_what_the_caches_call_for(self) -> None:
        owner = self.simulation.sets.store.get(KEY)
        if owner is None or owner.metadata.deletion_timestamp is not None or owner.spec.paused:
            self.ledger.owner_uid, self.ledger.creatable, self.ledger.deletable = "", 0, 0
            return
        matching = [
            vmi for vmi in self.simulation.vmis.store.values() if LABELS.items() <= labels_of(vmi.metadata).items()
        ]
        members = [vmi for vmi in matching if owner_uid_of(vmi) == owner.metadata.uid]
        orphans = [vmi for vmi in matching if controller_of(vmi.metadata) is None]
        active = sum(map(is_active, members))
        spent = sum(not is_deleting(vmi) and not is_active(vmi) for vmi in members)
        # Orphans count, because the reconciliation may adopt them.
        surplus = active + sum(map(is_active, orphans)) - owner.spec.replicas
        self.ledger.owner_uid = owner.metadata.uid
        self.ledger.creatable = max(owner.spec.replicas - active, 0)
        self.ledger.deletable = max(surplus, 0) + spent

    def judge(self, request: Request, before: Document | None) -> None:
        """Record this write in the ledger. If a guarantee forbids the write, the test fails."""
        if request.resource is not VMIS:
            return
        if request.verb == "create":
            made = self.simulation.server.find(VMIS, request.key)
            self.ledger.make(made.metadata.uid, owner_uid_of(made))
        elif request.verb == "delete":
            gone = VMIS.decode(msgspec.json.encode(before))
            self.ledger.delete(gone.metadata.uid, owner_uid_of(gone), deleting=is_deleting(gone))
        else:
            owner_uid = owner_uid_of(self.simulation.server.find(VMIS, request.key))
            assert owner_uid in ("", self.simulation.owner.metadata.uid), "guarantee 3: adopted by a set that is gone"

    async def run_pass(self, faults: Iterator[Fault | None], progress: Iterator[tuple[int, int]]) -> Report:
        self.ledger.owner_uid, self.ledger.creatable, self.ledger.deletable = "", 0, 0  # until a plan is made

        def fault_for(request: Request) -> Fault | None:
            vmis, sets = next(progress, (0, 0))
            self.simulation.vmis.catch_up(vmis)
            self.simulation.sets.catch_up(sets)
            return next(faults, None)

        self.simulation.server.fault_for = fault_for
        return await self.simulation.reconcile()

    def happen(self, what: str, *numbers: int) -> None:
        match what, *numbers:
            case "hear", vmis, sets:
                self.simulation.vmis.catch_up(vmis)
                self.simulation.sets.catch_up(sets)
            case "scale", replicas:
                self.simulation.server.change(REPLICASETS, KEY, {"spec": {"replicas": replicas}})
            case "pause", paused:
                self.simulation.server.change(REPLICASETS, KEY, {"spec": {"paused": paused or None}})
            case "recreate the set", replicas:
                self.simulation.server.remove(REPLICASETS, KEY)
                self.simulation.server.put(REPLICASETS, replicaset_document(replicas=replicas))
            case "leave an orphan", number if (
                self.simulation.server.find(VMIS, KEY._replace(name=f"orphan-{number}")) is None
            ):
                self.simulation.server.put(VMIS, vmi_document(f"orphan-{number}"))
            case "relist" | "restart", *_:
                self.simulation.vmis.relist()
                self.ledger.show_everything()
                if what == "restart":
                    self.simulation.sets.relist()
                    self.simulation.process.restart()

    def touch_a_vmi(self, what: str, number: int) -> None:
        vmis = self.simulation.server.objects(VMIS)
        if not vmis:
            return
        key = vmis[number % len(vmis)].metadata.key
        match what:
            case "finish":
                self.simulation.server.change(VMIS, key, {"status": {"phase": "Failed"}})
            case "delete":
                self.simulation.server.remove(VMIS, key)
                if self.simulation.server.find(VMIS, key) is None:
                    self.ledger.show(vmis[number % len(vmis)].metadata.uid, deleting=False)
            case "detach":
                self.simulation.server.change(VMIS, key, {"metadata": {"labels": {"app": "debug"}}})
            case "let go":
                self.simulation.server.finalize(VMIS, key)

    async def come_to_rest(self) -> None:
        """Guarantees 1 and 4: without faults, the set reaches the wanted number and then sends no more requests."""
        await self.rest()
        owner, active = self.simulation.owner, self.simulation.active
        assert owner.status is not None
        assert owner.status.replicas == len(active)
        assert owner.status.observed_generation == owner.metadata.generation
        if not owner.spec.paused:
            assert len(active) == owner.spec.replicas

    async def rest(self) -> None:
        for _ in range(60):
            self.simulation.process.catch_up()
            sent = len(self.simulation.server.requests)
            report = await self.run_pass(iter(()), iter(()))
            if isinstance(report.result, After):
                self.simulation.advance(report.result.seconds)
            elif len(self.simulation.server.requests) == sent:
                return
        raise AssertionError("never at rest")


def owner_uid_of(vmi: VirtualMachineInstance) -> str:
    owner = controller_of(vmi.metadata)
    return "" if owner is None else owner.uid


@settings(max_examples=60)
@given(
    story=st.lists(steps(), min_size=15, max_size=40),
    replicas=st.integers(0, 5),
    burst=st.sampled_from([2, 250]),
    finalizers=st.booleans(),
)
def test_guarantees_1_to_4_hold_under_any_faults(
    story: list[tuple[Any, ...]], replicas: int, burst: int, finalizers: bool
):
    async def play() -> None:
        await Scenario(replicas=replicas, burst=burst, finalizers=finalizers).play(story)

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
        runner.run(play())
