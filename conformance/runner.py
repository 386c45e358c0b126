"""Runs cases in parallel, each in its own namespace, and removes the namespaces afterwards."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from conformance.api import Api, finalizers_of
from conformance.case import MISSING, Case, Document, Kind, Origin, Result, Skip, Status, Unmet
from conformance.cluster import VERSIONS, VMHERD, Cluster, probe
from conformance.namespace import CaseNamespace, Conditions, Subject
from conformance.pools import Pools
from conformance.replica_sets import ReplicaSets
from conformance.templates import HOLD, POOL_FINALIZER
from informers.errors import ApiError, Conflict, NotFound

LABEL: Final = "vmherd.dev/conformance"
PREFIX: Final = "vmherd-conformance-"
GONE_S: Final = 120.0
PATIENCE_S: Final = 30.0
"""If a namespace exists after this time, in seconds, the run removes the finalizers from its pools and VMs."""

POLL_S: Final = 0.5
FINALIZED: Final = ("pool.kubevirt.io", "pool.vmherd.dev")


class Namespaces:
    """The namespaces of one run. With `keep`, they are not removed."""

    def __init__(self, api: Api, run: str, *, keep: bool = False) -> None:
        self._api = api
        self._keep = keep
        self.selector = f"{LABEL}={run}"
        self._labels = {LABEL: run}

    async def create(self, case: str) -> str:
        metadata = {
            "generateName": PREFIX,
            "labels": self._labels,
            "annotations": {"vmherd.dev/conformance-case": case},
        }
        made = await self._api.create("/api/v1/namespaces", {"metadata": metadata})
        return str(made["metadata"]["name"])

    async def delete(self, name: str) -> None:
        """Request the deletion of a namespace. The deletion completes later."""
        if not self._keep:
            await self._api.delete(f"/api/v1/namespaces/{name}")

    async def remove_all(self) -> list[str]:
        """Delete all namespaces of the run, and return the names of those that are not gone in time."""
        if self._keep:
            return []
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            left = await self._api.items("/api/v1/namespaces", self.selector)
            names = [namespace["metadata"]["name"] for namespace in left]
            if not names or loop.time() - began > GONE_S:
                return names
            for namespace in left:
                if "deletionTimestamp" not in namespace["metadata"]:
                    await self._api.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}")
            if loop.time() - began > PATIENCE_S:
                for name in names:
                    await self._remove_finalizers(name)
            await asyncio.sleep(POLL_S)

    async def _remove_finalizers(self, namespace: str) -> None:
        """Remove the suite's finalizer and the pool finalizer from all objects. Then the namespace can be deleted."""
        kubevirt = f"/apis/kubevirt.io/v1/namespaces/{namespace}"
        served = ((group, version) for group in FINALIZED for version in VERSIONS)
        pools = [f"/apis/{group}/{version}/namespaces/{namespace}/virtualmachinepools" for group, version in served]
        for path in (*pools, f"{kubevirt}/virtualmachines", f"{kubevirt}/virtualmachineinstances"):
            try:
                items = await self._api.items(path)
            except NotFound:
                continue
            for item in items:
                await self._remove_finalizers_of(f"{path}/{item['metadata']['name']}", item)

    async def _remove_finalizers_of(self, path: str, item: Document) -> None:
        before = finalizers_of(item)
        after = [each for each in before if each not in (HOLD, POOL_FINALIZER)]
        if after == before:
            return
        version = item["metadata"]["resourceVersion"]
        try:
            await self._api.merge(path, {"metadata": {"finalizers": after, "resourceVersion": version}})
        except (NotFound, Conflict):
            return  # the next round reads the object again


SPACES: Final[Mapping[Kind, type[CaseNamespace]]] = {Kind.SETS: ReplicaSets, Kind.POOLS: Pools}
CASE_S: Final = 900.0
"""The time limit of one case in seconds. It is a safety net: the waits inside a case have shorter limits."""


class Setup(Struct, frozen=True, kw_only=True):
    api: Api
    namespaces: Namespaces
    conditions: Conditions

    def space(self, kind: Kind, namespace: str, subject: Subject) -> CaseNamespace:
        return SPACES[kind](self.api, namespace, subject, self.conditions)


async def find_reconcilers(setup: Setup, cluster: Cluster) -> tuple[dict[Kind, str], bool]:
    """Return the controller of each kind, and whether a simulator runs the VMIs, by one object of each kind."""

    async def ask(kind: Kind, subject: Subject) -> tuple[str, bool]:
        namespace = await setup.namespaces.create("probe")
        try:
            return await probe(setup.space(kind, namespace, subject))
        finally:
            await setup.namespaces.delete(namespace)

    answers = await asyncio.gather(*(ask(kind, subject) for kind, subject in cluster.subjects.items()))
    found = dict(zip(cluster.subjects, answers, strict=True))
    return {kind: name for kind, (name, _) in found.items()}, any(simulated for _, simulated in answers)


async def run_cases(
    setup: Setup, cluster: Cluster, cases: Sequence[Case], *, parallel: int, on_result: Callable[[Result], None]
) -> list[Result]:
    """Run the cases, and return their results in the order of `cases`. `on_result` is called after each case."""
    waiting = deque(cases)
    results: dict[str, Result] = {}

    async def work() -> None:
        while waiting:
            result = await run_case(setup, cluster, waiting.popleft())
            results[result.case.id] = result
            on_result(result)

    async with asyncio.TaskGroup() as group:
        for number in range(parallel):
            group.create_task(work(), name=f"conformance-{number}")
    return [results[case.id] for case in cases]


async def run_case(setup: Setup, cluster: Cluster, case: Case) -> Result:
    if reason := missing(cluster, case):
        return Result(case=case, status=Status.SKIPPED, reason=reason)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        namespace = await setup.namespaces.create(case.id)
    except ApiError as error:
        return Result(case=case, status=Status.FAILED, expected="a namespace for the case", seen=str(error))
    space = setup.space(case.kind, namespace, cluster.subjects[case.kind])
    status, found = Status.PASSED, dict[str, str]()
    try:
        await _check(case, space, limit_s=CASE_S * setup.conditions.patience)
    except Skip as skip:
        status, found = Status.SKIPPED, {"reason": str(skip)}
    except Unmet as unmet:
        is_of_another = cluster.reconcilers.get(case.kind, "") not in ("", VMHERD)
        status = Status.DIFFERS if case.origin is Origin.VMHERD and is_of_another else Status.FAILED
        found = {"expected": unmet.expected, "seen": unmet.seen}
    finally:
        await setup.namespaces.delete(namespace)
    return Result(case=case, status=status, seconds=loop.time() - began, **found)


def missing(cluster: Cluster, case: Case) -> str:
    if case.kind not in cluster.subjects:
        return f"the cluster does not serve {case.kind}"
    return next((MISSING[each] for each in case.requires if each not in cluster.has), "")


async def _check(case: Case, space: CaseNamespace, *, limit_s: float) -> None:
    """Run the check of a case. Raises Unmet or Skip."""
    try:
        async with asyncio.timeout(limit_s):
            await case.check(space)
    except TimeoutError:
        raise Unmet("an end of the case", f"it still runs after {limit_s:g} s") from None
    except ApiError as error:
        raise Unmet("that the API server accepts the requests of the case", str(error)) from error
    except (LookupError, TypeError, ValueError) as error:
        raise Unmet("objects with the usual fields", f"{type(error).__name__}: {error}") from error
