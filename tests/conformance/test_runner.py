"""The runner of conformance cases: statuses, parallel cases, waits, and the creation and removal of namespaces."""

import asyncio
from typing import Any

import pytest

from conformance.case import Case, Check, Kind, Origin, Requirement, Result, Skip, Status, Unmet
from conformance.cluster import Cluster
from conformance.namespace import CaseNamespace, Conditions
from conformance.runner import GONE_S, LABEL, Namespaces, Setup, run_case, run_cases
from conformance.templates import HOLD, POOL_FINALIZER
from informers.errors import StatusError
from tests.conformance.stored_objects import NAMESPACES, SUBJECT, StoredObjects, case_namespace
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime

BY_VMHERD = Cluster(subjects={Kind.SETS: SUBJECT}, reconcilers={Kind.SETS: "vmherd"})
BY_KUBEVIRT = Cluster(subjects={Kind.SETS: SUBJECT}, reconcilers={Kind.SETS: "virt-controller"})
POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/{}/virtualmachinepools/pool"
VMS = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines/pool-0"


def setup(server: StoredObjects, *, keep: bool = False) -> Setup:
    namespaces = Namespaces(server.api, "run", keep=keep)
    return Setup(api=server.api, namespaces=namespaces, conditions=Conditions(image="image"))


def case(check: Check[Any], id: str = "case", **fields: Any) -> Case:
    usual: dict[str, Any] = {"kind": Kind.SETS, "origin": Origin.KUBEVIRT, "requires": ()}
    return Case(id=id, title="A case", rules="R1", check=check, **{**usual, **fields})


async def passes(space: CaseNamespace) -> None:
    await asyncio.sleep(2)


async def fails(space: CaseNamespace) -> None:
    raise Unmet("two VMIs", "one VMI")


async def skips(space: CaseNamespace) -> None:
    raise Skip("not here")


async def has_a_bug(space: CaseNamespace) -> None:
    raise KeyError("status")


async def is_refused(space: CaseNamespace) -> None:
    raise StatusError("forbidden", code=403)


async def never_ends(space: CaseNamespace) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("check", "status", "detail", "took_s"),
    [
        (passes, Status.PASSED, "", 2),
        (fails, Status.FAILED, "expected two VMIs; seen: one VMI", 0),
        (skips, Status.SKIPPED, "not here", 0),
        (has_a_bug, Status.FAILED, "expected objects with the usual fields; seen: KeyError: 'status'", 0),
        (
            is_refused,
            Status.FAILED,
            "expected that the API server accepts the requests of the case; seen: forbidden",
            0,
        ),
        (never_ends, Status.FAILED, "expected an end of the case; seen: it still runs after 900 s", 900),
    ],
)
async def test_a_case_has_its_duration_and_perhaps_a_reason_and_leaves_no_namespace(
    check: Check[Any], status: Status, detail: str, took_s: float, server: StoredObjects
):
    result = await run_case(setup(server), BY_VMHERD, case(check))
    assert (result.status, result.detail) == (status, detail)
    assert took_s <= result.seconds < took_s + 1
    assert server.under(NAMESPACES) == []


@pytest.mark.parametrize(
    ("cluster", "origin", "status"),
    [
        (BY_KUBEVIRT, Origin.VMHERD, Status.DIFFERS),
        (BY_KUBEVIRT, Origin.KUBEVIRT, Status.FAILED),
        (BY_VMHERD, Origin.VMHERD, Status.FAILED),
        (Cluster(subjects={Kind.SETS: SUBJECT}, reconcilers={Kind.SETS: ""}), Origin.VMHERD, Status.FAILED),
    ],
)
async def test_only_a_failure_of_another_controller_in_a_case_of_vmherd_is_a_difference(
    cluster: Cluster, origin: Origin, status: Status
):
    result = await run_case(setup(StoredObjects()), cluster, case(fails, origin=origin))
    assert result.status is status


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"requires": (Requirement.CDI,)}, "DataVolumes"),
        ({"requires": (Requirement.SIMULATOR,)}, "simulator"),
        ({"kind": Kind.POOLS}, "does not serve pools"),
    ],
)
async def test_a_case_whose_requirement_is_missing_is_skipped_without_a_namespace(
    fields: Any, reason: str, server: StoredObjects
):
    result = await run_case(setup(server), BY_VMHERD, case(fails, **fields))
    assert result.status is Status.SKIPPED
    assert reason in result.reason
    assert server.requests == []


async def test_a_namespace_that_cannot_be_created_fails_the_case(server: StoredObjects):
    def forbid(method: str, path: str) -> None:
        raise StatusError("namespaces is forbidden", code=403)

    server.on_request = forbid
    result = await run_case(setup(server), BY_VMHERD, case(passes))
    assert (result.status, result.seen) == (Status.FAILED, "namespaces is forbidden")


async def test_cases_run_in_parallel_and_results_have_the_order_of_the_cases():
    running: list[int] = [0, 0]

    async def counted(space: CaseNamespace) -> None:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(10 / running[0])
        running[0] -= 1

    cases = [case(counted, f"case-{number}") for number in range(7)]
    seen: list[Result] = []
    results = await run_cases(setup(StoredObjects()), BY_VMHERD, cases, parallel=3, on_result=seen.append)
    assert running == [0, 3]
    assert [result.case.id for result in results] == [f"case-{number}" for number in range(7)]
    assert sorted(result.case.id for result in seen) == [result.case.id for result in results]


async def test_each_case_has_its_own_labelled_namespace(server: StoredObjects):
    seen: list[tuple[str, Any]] = []

    async def look(space: CaseNamespace) -> None:
        [found] = [each for each in server.under(NAMESPACES) if each["metadata"]["name"] == space.namespace]
        seen.append((space.namespace, found["metadata"]["labels"]))

    await run_cases(
        setup(server), BY_VMHERD, [case(look, "a"), case(look, "b")], parallel=1, on_result=lambda result: None
    )
    assert len({name for name, _ in seen}) == 2
    assert all(labels == {LABEL: "run"} for _, labels in seen)


async def test_an_interrupted_run_removes_its_namespaces(server: StoredObjects):
    shared = setup(server)
    run = run_cases(shared, BY_VMHERD, [case(never_ends)], parallel=1, on_result=lambda result: None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run, 5)
    assert server.under(NAMESPACES) == []


async def test_the_end_of_a_run_removes_namespaces_that_were_created_in_the_moment_of_an_interruption(
    server: StoredObjects,
):
    shared = setup(server)
    await shared.namespaces.create("case")
    await Namespaces(server.api, "other").create("case")
    assert await shared.namespaces.remove_all() == []
    assert [each["metadata"]["labels"][LABEL] for each in server.under(NAMESPACES)] == ["other"]


async def test_with_keep_the_namespaces_stay(server: StoredObjects):
    shared = setup(server, keep=True)
    await run_case(shared, BY_VMHERD, case(fails))
    assert await shared.namespaces.remove_all() == []
    assert len(server.under(NAMESPACES)) == 1


async def test_without_a_controller_the_finalizers_of_the_pools_are_removed_after_some_time(server: StoredObjects):
    shared = setup(server)
    name = await shared.namespaces.create("case")
    server.put(POOLS.format(name), {"metadata": {"finalizers": [POOL_FINALIZER], "deletionTimestamp": "x"}})
    server.put(VMS.format(name), {"metadata": {"finalizers": [HOLD, POOL_FINALIZER], "deletionTimestamp": "x"}})
    assert await shared.namespaces.remove_all() == []
    assert 30 < asyncio.get_running_loop().time() < 40
    assert server.objects == {}


async def test_finalizers_of_others_are_not_removed_and_the_namespace_is_reported(server: StoredObjects):
    shared = setup(server)
    name = await shared.namespaces.create("case")
    server.put(VMS.format(name), {"metadata": {"finalizers": ["example.org/backup"], "deletionTimestamp": "x"}})
    assert await shared.namespaces.remove_all() == [name]
    assert asyncio.get_running_loop().time() > GONE_S


# Waits: the time limits, and the message if an expectation is not met


async def seconds() -> float:
    return now()


@pytest.mark.parametrize("patience", [0.5, 2.0])
async def test_the_patience_of_the_run_multiplies_the_time_limit(patience: float):
    space = case_namespace(StoredObjects(), patience=patience)
    with pytest.raises(Unmet) as unmet:
        await space.until("the end of time", seconds, lambda seen: False, within_s=10)
    assert 10 * patience - 0.5 < now() < 10 * patience + 0.5
    assert unmet.value.expected == f"the end of time within {10 * patience:g} s"


async def test_until_reports_the_last_state_in_one_line():
    space = case_namespace(StoredObjects())

    async def look() -> list[str]:
        return ["first\nline", "second"]

    with pytest.raises(Unmet) as unmet:
        await space.until_equal("no line", look, [], within_s=1)
    assert unmet.value.seen == '["first\\nline","second"]'


async def test_a_failed_request_is_repeated_and_reported_if_it_does_not_recover():
    space = case_namespace(StoredObjects())

    async def look() -> int:
        if now() < 3:
            raise StatusError("the server is busy", code=500)
        return 1

    assert await space.until("an answer", look, bool) == 1

    async def never() -> int:
        raise StatusError("the server is down", code=500)

    with pytest.raises(Unmet) as unmet:
        await space.until("an answer", never, bool, within_s=1)
    assert unmet.value.seen == "the server is down"


async def test_stays_fails_as_soon_as_the_state_changes():
    space = case_namespace(StoredObjects())
    await space.stays("less than 10 seconds", seconds, lambda seen: seen < 10, for_s=5)
    with pytest.raises(Unmet):
        await space.stays("less than 6 seconds", seconds, lambda seen: seen < 6, for_s=100)
    assert now() < 7
