"""Tests of the simulated controller process and of its simulated faults."""

import msgspec
import pytest

from controller.kubevirt.resources import VMIS, VMS
from controller.pool.plan import plan
from informers.errors import Forbidden, TransportError
from informers.meta import ObjectKey
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.garbage import collect_garbage
from tests.fakes.requests import FailedAfter, Fault, Garbled, Lost, refusal
from tests.fakes.virtual_time import run
from tests.pool_builders import pool
from tests.pool_simulation import PoolSimulation

KEY = ObjectKey("default", "a")
BODY = msgspec.json.encode({"metadata": {"name": "a"}})


@pytest.mark.parametrize("writes", [0, 1, 4, 6, 8])
def test_a_process_that_is_killed_after_some_writes_has_done_only_these_writes(writes: int) -> None:
    simulation = PoolSimulation(pool(replicas=6))
    stages = plan(simulation.snapshot()).stages
    simulation.crash_while_carrying_out(stages, writes)
    assert len(simulation.vms) + len(simulation.revisions) == min(writes, 7)
    simulation.come_to_rest()
    assert len(simulation.vms) == 6


def test_a_process_that_is_killed_in_a_pass_writes_no_status() -> None:
    simulation = PoolSimulation(pool(replicas=2))
    simulation.crash_in_a_pass(2)
    assert (len(simulation.vms), simulation.pool.get("status")) == (1, None)
    simulation.run_pass()
    assert simulation.pool["status"]["replicas"] == 2


@pytest.mark.parametrize(
    ("fault", "error", "happened"),
    [
        (None, None, True),
        (Lost.BEFORE, TransportError, False),
        (Lost.AFTER, TransportError, True),
        (FailedAfter(refusal(403, "Forbidden", "no")), Forbidden, True),
        (refusal(403, "Forbidden", "no"), Forbidden, False),
    ],
)
def test_a_fault_tells_whether_the_request_had_its_effect(
    fault: Fault | None, error: type[Exception] | None, happened: bool
) -> None:
    server = FakeApiServer()
    server.fault_for = lambda request: fault
    if error is None:
        assert b'"uid"' in run(server.create(VMIS, "default", BODY))
    else:
        with pytest.raises(error):
            run(server.create(VMIS, "default", BODY))
    assert (server.find(VMIS, KEY) is not None) is happened


def test_a_request_with_a_garbled_answer_had_its_effect() -> None:
    server = FakeApiServer()
    server.fault_for = lambda request: Garbled(b"<html>")
    assert run(server.create(VMIS, "default", BODY)) == b"<html>"
    assert server.find(VMIS, KEY) is not None


def test_a_cache_receives_events_one_by_one_and_versions_by_bookmark() -> None:
    server = FakeApiServer()
    cache = LaggingCache(server, VMIS)
    for name in ("a", "b"):
        server.put(VMIS, {"metadata": {"name": name}})
    server.put(VMS, {"metadata": {"name": "a"}})
    assert cache.behind() == 2
    cache.catch_up(1)
    assert [vmi.metadata.name for vmi in cache.store.values()] == ["a"]
    cache.catch_up()
    cache.bookmark()
    assert (len(cache.store.values()), cache.store.version("default")) == (2, str(server.version))


def test_the_garbage_collector_deletes_dependents_at_any_depth() -> None:
    server = FakeApiServer()
    uid = "gone"
    for name in ("a", "b", "c"):
        owners = [{"apiVersion": "v1", "kind": "Owner", "name": "x", "uid": uid}]
        uid = server.put(VMIS, {"metadata": {"name": name, "ownerReferences": owners}})["metadata"]["uid"]
    server.put(VMIS, {"metadata": {"name": "free"}})
    collect_garbage(server)
    assert list(server.documents(VMIS)) == ["free"]
