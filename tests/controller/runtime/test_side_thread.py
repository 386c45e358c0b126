import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controller.kubevirt.merge_keys import VM_RULES
from controller.pool.rules import PoolRules
from controller.replicaset.rules import ReplicaSetRules
from controller.runtime.execute import patches
from controller.runtime.workers import side_thread
from controller.runtime.workers.side_thread import LARGE, LARGE_BYTES, SideThread, is_large
from tests.builders import members, replicaset
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.pool_builders import pool, vm_spec
from tests.pool_simulation import PoolSimulation


@pytest.mark.parametrize("few", [{}, {"members": LARGE - 1}, {"size": LARGE_BYTES - 1}])
def test_members_and_bytes_decide_both(few: dict[str, int]):
    assert not is_large(**few)
    for name, number in few.items():
        assert is_large(**{name: number + 1})


async def test_there_is_one_plan_at_a_time():
    side = SideThread()
    threads = await asyncio.gather(*(side.call(threading.get_ident, large=True) for _ in range(10)))
    assert len(set(threads)) == 1


def pool_at_rest(replicas: int) -> PoolSimulation:
    simulation = PoolSimulation(pool(replicas=replicas))
    simulation.come_to_rest()
    return simulation


def set_at_rest(replicas: int) -> ReplicaSetSimulation:
    owner = replicaset(replicas=replicas)
    simulation = ReplicaSetSimulation.of(owner, members(owner, replicas))
    simulation.run_pass()
    return simulation


def noting(threads: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return function(*arguments)

    return noted


@pytest.mark.parametrize(("rules", "at_rest"), [(PoolRules, pool_at_rest), (ReplicaSetRules, set_at_rest)])
@pytest.mark.parametrize(
    ("limits", "is_other"),
    [({}, False), ({"LARGE": 2}, True), ({"LARGE_BYTES": 300}, True)],
    ids=["small", "many members", "large template"],
)
def test_the_size_alone_decides_where_a_pool_or_a_set_is_planned(
    monkeypatch: pytest.MonkeyPatch, rules: Any, at_rest: Callable[[int], Any], limits: dict[str, int], is_other: bool
) -> None:
    """The pool or set is at rest, so its plan is cheap."""
    simulation = at_rest(2)
    for name, limit in limits.items():
        monkeypatch.setattr(side_thread, name, limit)
    threads: list[int] = []
    for name in ("plan", "next_status"):
        monkeypatch.setattr(rules, name, staticmethod(noting(threads, getattr(rules, name))))
    simulation.run_pass()
    assert [thread != threading.get_ident() for thread in threads] == [is_other, is_other]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_vm_gets_its_new_template_in_the_thread(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    simulation = pool_at_rest(1)
    monkeypatch.setattr(side_thread, "LARGE_BYTES", 300 if is_large else side_thread.LARGE_BYTES)
    threads: list[int] = []
    monkeypatch.setattr(patches, "VM_RULES", SimpleNamespace(merge=noting(threads, VM_RULES.merge)))
    simulation.change_template(vm_spec(image="v2"))
    simulation.come_to_rest()
    assert [thread != threading.get_ident() for thread in threads] == [is_large]
