"""The status writer writes the next status only after the cache shows the previous status (R11)."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kinds import POOLS
from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.replicaset.status import PAUSED
from controller.runtime.settle.expectations import Expectations
from controller.runtime.settle.status_writer import ABSENT_S, SHORTEST_CONFLICT_S, StatusWriter
from controller.runtime.status import recounted, status_patch
from informers.errors import ApiError, TransportError
from informers.meta import ObjectKey
from tests import pool_builders
from tests.builders import REPLICASETS, replicaset, snapshot, vmi
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, Garbled, Lost, refusal
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime

KEY = ObjectKey("default", "web")


class StatusWriterSetup:
    def __init__(self) -> None:
        self.server = FakeApiServer(has_status=(REPLICASETS,))
        self.cache = LaggingCache(self.server, REPLICASETS)
        expectations = Expectations({REPLICASETS: self.cache.store}, now=now, gave_up=lambda: None)
        self.writer = StatusWriter(self.server, REPLICASETS, expectations)
        self.add()
        self.cache.catch_up()

    def add(self) -> None:
        self.server.put(REPLICASETS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {}})

    async def write(self, replicas: int) -> bytes:
        meta = self.cache.store.get(KEY).metadata
        metadata = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = msgspec.json.encode({"metadata": metadata, "status": {"replicas": replicas}})
        return await self.writer.write(KEY, meta, body)

    def may_write(self) -> bool:
        return self.writer.may_write(KEY, self.cache.store.get(KEY).metadata)

    @property
    def replicas(self) -> int | None:
        owner = self.server.find(REPLICASETS, KEY)
        return owner.status.replicas if owner is not None and owner.status is not None else None


@pytest.fixture
def setup() -> StatusWriterSetup:
    return StatusWriterSetup()


async def test_r11_the_next_status_waits_until_the_cache_shows_the_one_before(setup):
    assert setup.may_write()
    assert await setup.write(3)
    assert setup.replicas == 3
    assert not setup.may_write()
    setup.cache.catch_up()
    assert setup.may_write()


async def test_r11_after_a_conflict_the_next_status_from_the_same_version_is_written_later_and_later(setup):
    setup.server.change(REPLICASETS, KEY, {"spec": {"replicas": 1}})
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        assert not await setup.write(3)
        await asyncio.sleep(pause_s - 0.1)
        assert not setup.may_write()
        await asyncio.sleep(0.2)
        assert setup.may_write()
    setup.cache.catch_up()
    assert setup.may_write()
    setup.server.change(REPLICASETS, KEY, {"spec": {"replicas": 2}})
    assert not await setup.write(3)
    await asyncio.sleep(SHORTEST_CONFLICT_S)
    assert setup.may_write()


@pytest.mark.parametrize("is_conflict", [True, False])
async def test_r11_a_forgotten_set_may_get_a_status_at_once(setup, is_conflict: bool):
    if is_conflict:
        setup.server.change(REPLICASETS, KEY, {"spec": {"replicas": 1}})
    assert await setup.write(3) is not is_conflict
    assert not setup.may_write()
    setup.writer.forget(KEY)
    assert setup.may_write()


@pytest.mark.parametrize("is_new", [False, True], ids=["a deleted set", "a new set of the same name"])
async def test_r11_no_status_is_written_for_a_set_that_is_gone_and_that_is_no_error(setup, is_new: bool):
    setup.server.remove(REPLICASETS, KEY)
    if is_new:
        setup.add()
    assert not await setup.write(3)
    assert setup.replicas is None


@pytest.mark.parametrize("fault", [Lost.AFTER, Garbled(), TransportError("refused", sent=False)])
async def test_r11_other_errors_of_a_status_write_are_raised(setup, fault: Fault):
    setup.server.fault_for = lambda request: fault
    with pytest.raises(ApiError):
        await setup.write(3)
    assert setup.may_write()


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "being deleted"])
async def test_r11_a_set_that_the_server_does_not_have_or_is_deleting_is_left_alone_for_half_a_minute(setup, is_gone):
    """The garbage collector deletes what such a set creates. So a silent watch leads to no endless creates."""
    meta = setup.cache.store.get(KEY).metadata
    assert setup.writer.absent_s(KEY, meta) == 0.0
    if not is_gone:
        setup.server.change(REPLICASETS, KEY, {"metadata": {"finalizers": ["foregroundDeletion"]}})
    setup.server.remove(REPLICASETS, KEY)
    assert not await setup.write(3)
    assert setup.writer.absent_s(KEY, meta) == pytest.approx(ABSENT_S, abs=0.1)
    assert setup.writer.absent_s(KEY, replace(meta, uid="another-uid")) == 0.0
    assert not await setup.write(3)
    await asyncio.sleep(ABSENT_S)
    assert setup.writer.absent_s(KEY, meta) == 0.0
    assert not await setup.write(3)
    assert setup.writer.absent_s(KEY, replace(meta, resource_version="9")) == 0.0, "the cache shows another state"
    assert not await setup.write(3)
    setup.writer.forget(KEY)
    assert setup.writer.absent_s(KEY, meta) == 0.0


async def test_r11_a_set_that_has_only_changed_is_not_left_alone(setup):
    meta = setup.cache.store.get(KEY).metadata
    setup.server.change(REPLICASETS, KEY, {"spec": {"replicas": 5}})
    assert not await setup.write(3)
    assert setup.writer.absent_s(KEY, meta) == 0.0


async def test_r11_a_refused_status_is_written_later_and_later_while_the_generation_stays_the_same(setup):
    setup.server.fault_for = lambda request: refusal(403, "Forbidden", "denied by a policy")
    for wait_s in (SHORTEST_CONFLICT_S, 2 * SHORTEST_CONFLICT_S):
        with pytest.raises(ApiError, match="denied by a policy"):
            await setup.write(3)
        setup.server.change(REPLICASETS, KEY, {"metadata": {"annotations": {"note": str(wait_s)}}})
        setup.cache.catch_up()
        await asyncio.sleep(wait_s - 0.1)
        assert not setup.may_write()
        await asyncio.sleep(0.1)
        assert setup.may_write()


KNOWN = POOLS.known_status or frozenset()
CONDITION = msgspec.to_builtins(PAUSED)
AS_KEPT = {"replicas": 3, "readyReplicas": 3, "labelSelector": "app=web"}


def test_r11_a_pass_reports_the_latest_members_under_the_generation_it_worked_from():
    planned = snapshot(replicaset(generation=1, replicas=3))
    newer = replicaset(generation=2, replicas=9, paused=True, status=ReplicaSetStatus(replicas=1))
    latest = snapshot(newer, [vmi(owner=newer)])
    told = recounted(planned, latest)
    assert told.members == latest.members
    assert told.owner.metadata.generation == 1
    assert told.owner.spec == planned.owner.spec
    assert told.owner.status == newer.status


def test_r11_a_pass_writes_no_status_for_another_set_of_the_same_name():
    assert recounted(snapshot(replicaset(uid="old")), snapshot(replicaset(uid="new"))) is None


def pool_with(status: dict[str, Any] | None) -> Pool:
    return pool_builders.pool(status=status)


def patch_of(owner: Pool, **changes: Any) -> dict[str, Any] | None:
    """The patch that changes these fields of the pool's status.

    Fields outside KubeVirt's status schema are left out.
    """
    body = status_patch(owner, msgspec.convert({**AS_KEPT, **changes}, PoolStatus), known=KNOWN)
    return None if body is None else msgspec.json.decode(body)


def test_fields_that_are_not_in_the_schema_are_not_sent():
    owner = pool_with(None)
    body = patch_of(owner, updatedReplicas=3, printableStatus="Running", observedGeneration=4)
    assert body is not None
    assert set(body["status"]) == KNOWN
    assert body["metadata"] == {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}


def test_conditions_are_compared_as_they_are():
    held = pool_with({**AS_KEPT, "conditions": [CONDITION]})
    assert patch_of(held, conditions=[CONDITION], observedGeneration=9) is None
    assert patch_of(held, conditions=[{**CONDITION, "reason": "Other"}]) is not None
    gone = patch_of(held)
    assert gone is not None
    assert gone["status"]["conditions"] is None


COUNTS = st.none() | st.integers(0, 5)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "replicas": COUNTS,
        "readyReplicas": COUNTS,
        "updatedReplicas": COUNTS,
        "observedGeneration": COUNTS,
        "labelSelector": st.sampled_from([None, "a=b", ""]),
        "printableStatus": st.sampled_from([None, "Running"]),
        "conditions": st.sampled_from([None, [], [CONDITION]]),
    },
)


@given(STATUSES, STATUSES)
def test_after_the_server_dropped_unknown_fields_nothing_is_left_to_write(held, wanted):
    status = msgspec.convert(wanted, PoolStatus)
    body = status_patch(pool_with(held), status, known=KNOWN)
    fields = msgspec.json.decode(body)["status"] if body else {}
    merged = {**{field: value for field, value in held.items() if field in KNOWN}, **fields}
    later = pool_with({field: value for field, value in merged.items() if value is not None})
    assert status_patch(later, status, known=KNOWN) is None
