"""R9: the comparison of a cache with the server before the first delete in a namespace."""

import asyncio
from typing import Any

import pytest

from controller.apimachinery.indexes import NAMESPACE, by_namespace
from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Delete, Plan, Stage
from controller.runtime.execute import late_cache
from controller.runtime.execute.disk_check import metadata_pages
from controller.runtime.execute.late_cache import LateCache
from informers.meta import ObjectKey, ObjectMeta
from informers.store import Store
from tests.builders import vmi
from tests.controller.runtime.executor_setup import document
from tests.cost.meter import Meter
from tests.fakes.apiserver import FakeApiServer


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
