"""The cache check finds a cached object that contradicts the API server, and requests a new list."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from controller.apimachinery.indexes import NAMESPACE, by_namespace
from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Delete, Patch, Plan, Stage
from controller.runtime.execute import late_cache
from controller.runtime.execute.disk_check import metadata_pages
from controller.runtime.execute.late_cache import LateCache
from controller.runtime.settle.cache_check import DOUBT_S, LEAVING_S, MAX_DOUBTS, PERIOD_S, READS, RELIST_PAUSE_S
from controller.runtime.settle.expectations import LATE_S
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import PatchType
from informers.store import Store
from tests.builders import vmi
from tests.controller.runtime.executor_setup import ExecutorSetup, create, delete, document, key, kinds, patch
from tests.controller.runtime.refusals import GONE, INVALID, UNREACHABLE
from tests.cost.meter import Meter
from tests.fakes.apiserver import FakeApiServer

pytestmark = pytest.mark.looptime

CHECKED_S = DOUBT_S + 3 * PERIOD_S
"""After this time, in seconds, the check of an object is complete. A check with two answers 404 is complete, too."""


class Informer:
    """An informer of the cache under test. `lists` records the namespace and the argument `restored` of each requested
    list.
    """

    def __init__(self, setup: ExecutorSetup) -> None:
        self._cache = setup.cache
        self.resource, self.store = setup.cache.resource, setup.cache.store
        self.lists: list[tuple[str, bool]] = []

    def add_handler(self, handler: Callable[[Any], None]) -> None:
        self._cache._handler = handler

    def relist(self, why: str, *, namespace: str = "", restored: bool = False) -> None:
        self.lists.append((namespace, restored))
        self._cache.relist()


@asynccontextmanager
async def checking(setup: ExecutorSetup) -> AsyncIterator[Informer]:
    informer = Informer(setup)
    setup.check.watch([informer])
    task = asyncio.create_task(setup.check.run(), name="check")
    try:
        yield informer
    finally:
        task.cancel()


async def test_an_object_whose_added_event_was_lost_is_in_the_cache_after_its_create_was_refused(setup):
    async with checking(setup) as informer:
        setup.server.put(VMIS, document("vm"))
        setup.cache.lose_event()
        assert kinds([await setup.outcome_of(create("vm"))]) == ["AlreadyThere"]
        assert setup.settled
        await asyncio.sleep(CHECKED_S)
        assert informer.lists == [("default", False)]
        assert setup.cache.store.get(key("vm")) is not None


@pytest.mark.parametrize("action", [delete(uid="uid-of-vm"), patch()])
async def test_an_object_whose_deleted_event_was_lost_leaves_the_cache_after_an_answer_404(setup, action):
    setup.add("vm")
    async with checking(setup) as informer:
        setup.server.remove(VMIS, key("vm"))
        setup.cache.lose_event()
        assert kinds([await setup.outcome_of(action)]) == ["Missing"]
        sent = len(setup.sent)
        await asyncio.sleep(CHECKED_S)
        assert setup.sent[sent:] == ["get vm"] * 2, "the event of a deletion may be late after the first answer 404"
        assert informer.lists == [("default", False)]
        assert setup.cache.store.get(key("vm")) is None


@pytest.mark.parametrize("type_", [PatchType.MERGE, PatchType.JSON])
async def test_an_object_whose_modified_event_was_lost_is_up_to_date_after_a_refused_patch(setup, type_: PatchType):
    """A merge patch of an old version is a conflict. A failed test of a JSON patch is invalid."""
    setup.add("vm")
    stale = setup.cache.store.get(key("vm")).metadata.resource_version
    async with checking(setup) as informer:
        setup.server.change(VMIS, key("vm"), {"metadata": {"labels": {"a": "b"}}})
        setup.cache.lose_event()
        action = patch(resourceVersion=stale, labels={"c": "d"})
        if type_ is PatchType.JSON:
            setup.fail(INVALID, verb="patch")
            action = replace(action, type=type_, body=b"[]")
        assert kinds([await setup.outcome_of(action)]) == ["Rejected"]
        await asyncio.sleep(CHECKED_S)
        assert len(informer.lists) == 1
        assert setup.cache.store.get(key("vm")).metadata.labels == {"a": "b"}


async def test_a_delete_whose_event_was_lost_is_doubted_and_the_key_is_settled_after_the_list(setup):
    uid = setup.add("vm")
    async with checking(setup) as informer:
        assert kinds([await setup.outcome_of(delete("vm", uid))]) == ["Done"]
        setup.cache.lose_event()
        await asyncio.sleep(LATE_S)
        assert not setup.settled
        await asyncio.sleep(CHECKED_S)
        assert len(informer.lists) == 1
        assert setup.settled


async def test_an_object_whose_end_was_lost_after_the_cache_has_shown_its_deletion_leaves_the_cache(setup):
    """No program writes to an object that is being deleted, so no answer contradicts the cache."""
    async with checking(setup) as informer:
        setup.add("vm")
        setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": ["kubevirt.io/x"]}})
        setup.server.remove(VMIS, key("vm"))
        setup.cache.catch_up()
        setup.server.finalize(VMIS, key("vm"))
        setup.cache.lose_event()
        await asyncio.sleep(LEAVING_S + CHECKED_S)
        assert len(informer.lists) == 1
        assert setup.cache.store.get(key("vm")) is None


async def test_a_late_event_is_no_contradiction_and_costs_no_request(setup):
    setup.add("vm")
    async with checking(setup) as informer:
        setup.server.remove(VMIS, key("vm"))
        await setup.outcome_of(patch())
        await asyncio.sleep(DOUBT_S - 1)
        setup.cache.catch_up()
        sent = len(setup.sent)
        await asyncio.sleep(CHECKED_S)
        assert informer.lists == []
        assert len(setup.sent) == sent


async def test_an_object_that_is_newer_than_the_cache_is_no_contradiction(setup):
    """The watch may still deliver this change."""
    async with checking(setup) as informer:
        setup.server.put(VMIS, document("vm"))
        assert kinds([await setup.outcome_of(create("vm"))]) == ["AlreadyThere"]
        await asyncio.sleep(CHECKED_S)
        assert setup.sent[-1] == "get vm"
        assert informer.lists == []


async def test_an_object_that_changes_during_the_check_is_no_contradiction(setup):
    async with checking(setup) as informer:
        setup.server.put(VMIS, document("vm"))
        setup.cache.lose_event()
        setup.check.doubt(VMIS, key("vm"))
        setup.server.fault_for = lambda request: setup.cache.relist()
        await asyncio.sleep(CHECKED_S)
        assert informer.lists == []


async def test_a_patch_that_a_webhook_refuses_all_the_time_causes_no_list(setup):
    setup.add("vm")
    async with checking(setup) as informer:
        setup.fail(INVALID, verb="patch")
        action = Patch(resource=VMIS, key=key("vm"), body=b"[]", type=PatchType.JSON, why="test")
        for _ in range(20):
            await setup.outcome_of(action)
            await asyncio.sleep(5)
        assert informer.lists == []


async def test_a_read_that_fails_is_tried_again_and_holds_up_no_other_check(setup):
    async with checking(setup) as informer:
        setup.server.put(VMIS, document("vm"))
        setup.cache.lose_event()
        setup.server.fault_for = lambda request: None if request.key.name == "vm" else UNREACHABLE
        for each in range(MAX_DOUBTS):
            setup.check.doubt(VMIS, key(f"unreadable-{each}"))
        setup.check.doubt(VMIS, key("vm"))
        await asyncio.sleep(DOUBT_S + PERIOD_S * (MAX_DOUBTS / READS + 1))
        assert len(informer.lists) == 1
        assert setup.cache.store.get(key("vm")) is not None


async def test_a_resource_is_listed_at_most_once_in_thirty_seconds(setup):
    """The server of this test contradicts itself: it has a VMI in its lists, but answers 404. A contradiction that is
    found too early waits for its list.
    """
    setup.add("vm")
    async with checking(setup) as informer:
        setup.fail(GONE)
        for _ in range(2):
            setup.check.doubt(VMIS, key("vm"))
            await asyncio.sleep(DOUBT_S + 2 * PERIOD_S)
        assert len(informer.lists) == 1
        await asyncio.sleep(RELIST_PAUSE_S)
        assert len(informer.lists) == 2


async def test_one_check_reads_few_objects(setup):
    async with checking(setup):
        for index in range(50):
            setup.check.doubt(VMIS, key(f"vm-{index}"))
        await asyncio.sleep(DOUBT_S + PERIOD_S / 2)
        assert len(setup.sent) == READS


async def test_a_new_object_with_an_older_version_than_the_cache_proves_a_restore(setup):
    async with checking(setup) as informer:
        setup.cache.store.advance("1000")
        with capture_logs() as logs:
            assert kinds([await setup.outcome_of(create("vm"))]) == ["Done"]
        assert informer.lists == [("", True)]
        assert [entry["log_level"] for entry in logs] == ["error"]
        await setup.outcome_of(create("vm-2"))
        assert len(informer.lists) == 1


async def test_creates_at_the_same_time_as_events_prove_no_restore(setup):
    async with checking(setup) as informer:
        setup.server.fault_for = lambda request: setup.add("other") and None
        assert kinds([await setup.outcome_of(create("vm"))]) == ["Done"]
        assert informer.lists == []


def cost_beside(others: int) -> tuple[bool, int, list[ObjectKey]]:
    """With this many VMIs in another namespace, return whether the deletes must wait, the cost of the answer, and the
    doubts.
    """
    store: Store[Any] = Store(indexes={NAMESPACE: by_namespace})
    for number in range(others):
        store.apply(vmi(f"other-{number}", namespace="other"))
    store.apply(vmi("deleted-by-the-predecessor"))
    delete = Delete(resource=VMIS, key=ObjectKey("default", "a"), uid="uid-a", why="surplus")
    answers: list[bool] = []
    doubts: list[ObjectKey] = []

    async def ask() -> None:
        first = LateCache(FakeApiServer(), {VMIS: store}, lambda _, key: doubts.append(key))
        held = await first.held(Plan(stages=(Stage((delete,)),)), ObjectMeta(), first.shown("default"))
        answers.append(held is not None)

    with asyncio.Runner() as runner:
        runner.get_loop()
        cost = Meter(10_000_000).count(lambda: runner.run(ask()))
    return answers[0], cost, doubts


def test_r9_the_check_before_the_first_delete_reads_only_the_objects_of_its_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_cache, "USUAL_S", 0.0)  # else the number of looks depends on the clock
    cost_beside(1)  # the first call fills caches of Python
    few, many = cost_beside(1), cost_beside(5_000)
    assert few[0] is many[0] is True
    assert few[2] == many[2] == [ObjectKey("default", "deleted-by-the-predecessor")], "the watch may have lost its end"
    assert abs(many[1] - few[1]) < 2_500, "a scan executes several instructions for each object"


async def test_r9_large_metadata_come_in_small_pages() -> None:
    server, names = FakeApiServer(), [f"vmi-{number}" for number in range(20)]
    for name in names:
        server.put(VMIS, document(name, annotations={"note": "x" * 1_000_000}))
    pages = [page async for page in metadata_pages(server, (VMIS, "default"))]
    assert [each.metadata.name for page in pages for each in page.items or ()] == sorted(names)
    assert max(len(page.items or ()) for page in pages) < 5
