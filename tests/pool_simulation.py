"""A namespace with one pool on the fake API server. The real reconciler and a simulated KubeVirt work on the pool.

Time is virtual. The caches receive the controller's writes at once, and all other events before each reconciliation.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from controller import kinds
from controller.apimachinery.indexes import NAMESPACE, by_namespace
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import CONTROLLER_REVISIONS, PVCS, VMIS, VMS
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Snapshot, Stores
from controller.pool.rules import PoolRules
from controller.runtime.actions import Action, Outcome, Stage
from controller.runtime.execute.refusals import Refusals
from controller.runtime.result import AwaitChange, Result
from informers.meta import ObjectKey
from tests.builders import NOW
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.garbage import collect_garbage, references_to
from tests.fakes.kubevirt import FakeKubeVirt
from tests.fakes.process import ReconcilerProcess
from tests.fakes.requests import AnyResource, Document, Request, refusal
from tests.fakes.rules import without_nulls
from tests.fakes.virtual_time import loop, run
from tests.pool_builders import POOLS


class PoolSimulation:
    """At the start, the namespace contains only `pool`. The server answers Forbidden to each request for which
    `refuses` is true.
    """

    def __init__(self, pool: Pool) -> None:
        self._started = loop().time()
        self.server = FakeApiServer(latency_s=0, has_status=(POOLS, VMS), now=lambda: self.now)
        self.refuses: Callable[[Request], bool] = lambda request: False
        self.server.fault_for = lambda request: refusal(403, "Forbidden", "no") if self.refuses(request) else None
        self.server.on_write = lambda request, before: self.process.catch_up()
        self.server.put(POOLS, msgspec.json.decode(msgspec.json.encode(pool)))
        self.name, self.uid = pool.metadata.name, pool.metadata.uid
        self.kubevirt = FakeKubeVirt(self.server, now=lambda: self.now, cdi=True)
        pools = LaggingCache(self.server, POOLS)
        vms = LaggingCache(self.server, VMS, indexes=VM_INDEXES)
        vmis = LaggingCache(self.server, VMIS, indexes={NAMESPACE: by_namespace})
        revisions = LaggingCache(self.server, CONTROLLER_REVISIONS, indexes=REVISION_INDEXES)
        stores = Stores(pools.store, vms.store, vmis.store, revisions.store)
        rosters = PoolRosters(vms.store, vmis.store)
        rules = PoolRules(stores, POOLS, Limits(), rosters, Refusals())
        self.caches = (pools, vms, vmis, revisions)
        self.process = ReconcilerProcess(
            self.server, kinds.POOLS, rules, owners=pools, children=self.caches, now=lambda: self.now
        )

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=loop().time() - self._started)

    @property
    def pool(self) -> Document:
        return self.server.document(POOLS, self.key(self.name))

    @property
    def vms(self) -> dict[str, Document]:
        return self.of(VMS)

    @property
    def claims(self) -> dict[str, Document]:
        return self.of(PVCS)

    @property
    def actions(self) -> list[Action]:
        return self.process.actions

    def of(self, resource: AnyResource) -> dict[str, Document]:
        return self.server.documents(resource)

    def key(self, name: str) -> ObjectKey:
        return ObjectKey("default", name)

    def members(self) -> list[str]:
        """The names of the VMs that the pool controls, including those that are being deleted."""
        return sorted(name for name, vm in self.vms.items() if references_to(vm, self.uid))

    def running(self) -> list[str]:
        """The names of the members that are not being deleted."""
        return [name for name in self.members() if "deletionTimestamp" not in self.vms[name]["metadata"]]

    def snapshot(self) -> Snapshot:
        self.process.catch_up()
        seen = self.process.rules.take_snapshot(self.key(self.name), now=self.now, settled=True)
        assert seen is not None
        return seen

    def run_pass(self) -> tuple[Action, ...]:
        """Reconcile once. Returns the actions that were tried."""
        return self._run_pass()[0]

    def crash_in_a_pass(self, writes: int) -> None:
        """Run a reconciliation, kill the process after this number of writes, and start a new process."""
        self.process.catch_up()
        run(self.process.kill_after(writes, self.process.reconcile(self.key(self.name))))

    def restart(self) -> None:
        """Start a new process. It knows only the objects on the API server."""
        self.process.rules.rosters.forget(self.key(self.name))
        self.process.restart()

    def carry_out(self, stages: Sequence[Stage]) -> tuple[Outcome, ...]:
        """Carry out the stages of an earlier plan, without making a new plan."""
        return run(self.process.carry_out(self.key(self.name), self.uid, stages))

    def come_to_rest(self) -> None:
        """Reconcile until nothing changes and no requeue is requested. KubeVirt and the garbage collector act in
        between.
        """
        for _ in range(120):
            before = self.server.version
            tried, result = self._run_pass()
            self.live_on()
            if before == self.server.version and isinstance(result, AwaitChange):
                return
        raise AssertionError(f"not at rest after 120 passes: {tried} {result}")

    def run_passes(self, number: int) -> None:
        """Reconcile this number of times. KubeVirt and the garbage collector act after each reconciliation."""
        for _ in range(number):
            self.run_pass()
            self.live_on()

    def live_on(self) -> None:
        """Let five seconds pass. Then let the nodes, the VM controller and the garbage collector act once."""
        run(asyncio.sleep(5))
        self.kubevirt.act()
        self.collect_garbage()

    def collect_garbage(self) -> None:
        collect_garbage(self.server)

    def change(self, **fields: Any) -> None:
        """Replace fields of the pool's spec, as a user does. A value of None removes the field."""
        self.server.replace(POOLS, {**self.pool, "spec": without_nulls({**self.pool["spec"], **fields})})

    def change_template(self, spec: Document) -> None:
        """Replace the VM spec in the pool's template."""
        self.change(virtualMachineTemplate={**self.pool["spec"]["virtualMachineTemplate"], "spec": spec})

    def delete_by_user(self, name: str) -> None:
        self.server.remove(VMS, self.key(name))

    def delete_pool(self, policy: str = "Background") -> None:
        self.server.remove(POOLS, self.key(self.name), propagation=policy)

    def _run_pass(self) -> tuple[tuple[Action, ...], Result]:
        self.process.catch_up()
        before = len(self.actions)
        report = run(self.process.reconcile(self.key(self.name)))
        return tuple(self.actions[before:]), report.result
