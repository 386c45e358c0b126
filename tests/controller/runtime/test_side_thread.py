import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.pool.rules import PoolRules
from controller.replicaset.rules import ReplicaSetRules
from controller.runtime.workers import side_thread
from controller.runtime.workers.side_thread import LARGE, SideThread
from tests.builders import replicaset, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.pool_builders import pool
from tests.pool_simulation import PoolSimulation


async def test_the_event_loop_continues_during_a_plan_for_many_members():
    released = threading.Event()
    call = asyncio.create_task(SideThread().call(released.wait, 10.0, members=LARGE))
    await asyncio.sleep(0.01)
    assert not call.done()
    released.set()
    was_released, _ = await call
    assert was_released


async def test_the_plan_for_few_members_needs_no_other_thread():
    thread, _ = await SideThread().call(threading.get_ident, members=LARGE - 1)
    assert thread == threading.get_ident()


async def test_there_is_one_plan_at_a_time():
    side = SideThread()
    threads = await asyncio.gather(*(side.call(threading.get_ident, members=LARGE) for _ in range(10)))
    assert len({thread for thread, _ in threads}) == 1


async def test_an_exception_of_the_plan_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        await SideThread().call(lambda: 1 // 0, members=LARGE)


def pool_at_rest(replicas: int) -> PoolSimulation:
    simulation = PoolSimulation(pool(replicas=replicas))
    simulation.come_to_rest()
    return simulation


def set_at_rest(replicas: int) -> ReplicaSetSimulation:
    owner = replicaset(replicas=replicas)
    simulation = ReplicaSetSimulation.of(owner, [vmi(f"vm-{number}", owner=owner) for number in range(replicas)])
    simulation.run_pass()
    return simulation


@pytest.mark.parametrize(("rules", "at_rest"), [(PoolRules, pool_at_rest), (ReplicaSetRules, set_at_rest)])
@pytest.mark.parametrize(("replicas", "is_other"), [(2, False), (3, True)])
def test_the_number_of_members_alone_decides_where_a_pool_or_a_set_is_planned(
    monkeypatch: pytest.MonkeyPatch, rules: Any, at_rest: Callable[[int], Any], replicas: int, is_other: bool
) -> None:
    """The pool or set is at rest, so its plan is cheap."""
    simulation = at_rest(replicas)
    monkeypatch.setattr(side_thread, "LARGE", 3)
    threads: list[int] = []

    def noting(function: Callable[..., Any]) -> object:
        def noted(*arguments: Any) -> Any:
            threads.append(threading.get_ident())
            return function(*arguments)

        return staticmethod(noted)

    monkeypatch.setattr(rules, "plan", noting(rules.plan))
    monkeypatch.setattr(rules, "next_status", noting(rules.next_status))
    simulation.run_pass()
    assert [thread != threading.get_ident() for thread in threads] == [is_other, is_other]
