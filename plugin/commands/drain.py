"""`kubectl vmherd drain`: evicts the VMIs of a node, and respects the limit of unavailable members of each pool and
set.

KubeVirt decides what an eviction does: it migrates the VMI, or ends it. If the VMI ends, its VM or set starts another
VMI on another node. Other Pods stay on the node: `kubectl drain` evicts these.
"""

import asyncio
from typing import Any, Final

import click
import msgspec

from controller.kinds import KINDS, Kind
from controller.kubevirt import vmis
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.errors import NotFound, StatusError, TooManyRequests
from informers.meta import ObjectKey, OwnerReference, controller_of
from informers.objects import PatchType
from informers.resource import PartialObject, Resource
from plugin.command import verb
from plugin.connection import Failed, Session, carry_out
from plugin.flags import CLIENT, NONE, flags_of
from plugin.names import NODES
from plugin.printing import notes_about_missing, print_lines, width
from plugin.reading import Reader
from plugin.subjects import Subject, did_you_mean
from plugin.views.draining import Budget, Evictee, budget_of, choose, loss_lines

INTERVAL_S: Final = 1.0
NODE_LABEL: Final = "kubevirt.io/nodeName"
CREATED_BY: Final = "kubevirt.io/created-by"
"""The label on a launcher Pod. Its value is the UID of the VMI."""


PODS: Final = Resource(PartialObject, group="", version="v1", plural="pods", kind="Pod")


@verb(
    "drain",
    "Cordon a node and evict its VMs. No pool or set gets more unavailable VMs than its maxUnavailable allows; "
    "without one, its VMs leave one at a time.",
)
@click.argument("node")
def command(node: str, timeout_s: float, force: bool, **values: Any) -> None:
    carry_out(flags_of(values), lambda session: run(session, node, timeout_s, force=force))


async def run(session: Session, node: str, timeout_s: float, *, force: bool) -> None:
    """Drain the node. Raise Failed, ApiError."""
    drain = Drain(session, node)
    await drain.check_node()
    there = await drain.evictees()
    bare = [str(each) for each in there if each.is_bare]
    if bare and not force:
        raise Failed(f"error: nothing starts these VMIs again: {', '.join(bare)}; --force evicts them too")
    if there:
        print_lines(loss_lines(there, await drain.budgets(), width=width()))
    notes_about_missing(drain.missing())
    await drain.cordon()
    if session.flags.dry_run == NONE:
        try:
            async with asyncio.timeout(timeout_s or None):
                await drain.evict_all()
        except TimeoutError as error:
            raise Failed(f"error: timed out: {len(await drain.evictees())} VMIs are still on {node}") from error
    print(f"node/{node} drained{session.flags.dry_run_suffix}")


class Drain:
    """The drain of one node. It remembers the owners of VMIs, and the evictions that have begun."""

    def __init__(self, session: Session, node: str) -> None:
        self._session = session
        self._node = node
        self._owners: dict[str, Subject | None] = {}
        self._places: dict[str, tuple[str, Subject]] = {}
        """The namespace and the name of each pool and set. The keys are those of the budgets."""

        self._bare: set[str] = set()
        self._evicted: set[str] = set()
        self._said: set[str] = set()
        self._readers: dict[str, Reader] = {}

    async def check_node(self) -> None:
        """Raise Failed if no node has this name."""
        try:
            await self._session.request("GET", NODES.path("", self._node))
        except NotFound as error:
            hint = did_you_mean(self._node, await self._session.names_of(NODES))
            raise Failed(f"Error from server (NotFound): {error}{hint}") from error

    async def cordon(self) -> None:
        flags = self._session.flags
        if flags.dry_run != CLIENT:
            body = msgspec.json.encode({"spec": {"unschedulable": True}})
            await self._session.patch(NODES, ObjectKey("", self._node), body, content_type=PatchType.MERGE)
        print(f"node/{self._node} cordoned{flags.dry_run_suffix}", flush=True)

    async def evictees(self) -> list[Evictee]:
        params = {"labelSelector": f"{NODE_LABEL}={self._node}"}
        page = VMIS.decode_page(await self._session.request("GET", VMIS.path(), params=params))
        there = [vmi for vmi in page.items or () if vmis.node_of(vmi) == self._node and not vmis.is_final(vmi)]
        return [await self._evictee(vmi) for vmi in there]

    async def budgets(self) -> dict[str, Budget]:
        found = {}
        self._readers.clear()
        for key, (namespace, subject) in self._places.items():
            reader = self._readers.setdefault(namespace, Reader(self._session, namespace, once=True))
            try:
                [target] = await reader.targets([subject])
            except Failed:
                continue  # the pool or set was deleted, so it has nothing to lose
            found[key] = budget_of(await reader.situation(target))
        return found

    def missing(self) -> list[str]:
        return [line for reader in self._readers.values() for line in reader.missing.values()]

    async def evict_all(self) -> None:
        """Evict until no VMI runs on the node. Raise ApiError."""
        while there := await self.evictees():
            budgets = await self.budgets()
            round_ = choose(there, budgets, self._evicted)
            for each in round_.now:
                await self._evict(each)
            for owner, number in round_.waiting.items():
                budget = budgets[owner]
                name = owner.partition(" ")[0]
                unavailable = f"{budget.unavailable} of {budget.limit} allowed are unavailable"
                self._say(f"waiting: {number} VMs of {name} stay for now ({unavailable})")
            await asyncio.sleep(INTERVAL_S)

    async def _evict(self, vmi: Evictee) -> None:
        """Evict the launcher Pods of a VMI on the node. A denied eviction is repeated in the next round."""
        params = {"labelSelector": f"{CREATED_BY}={vmi.uid}", "fieldSelector": f"spec.nodeName={self._node}"}
        answer = await self._session.request("GET", PODS.path(vmi.namespace), params=params)
        for pod in PODS.decode_page(answer).items or ():
            name = pod.metadata.name
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            try:
                path = PODS.path(vmi.namespace, name, "eviction")
                await self._session.request("POST", path, body=msgspec.json.encode(body))
            except NotFound:
                continue
            except TooManyRequests as error:
                if "evacuation" not in str(error):
                    self._say(f"waiting: the eviction of {vmi} is denied: {error}")
                    return
                self._say(f"migrating vmi {vmi}")
            except StatusError as error:
                self._say(f"waiting: the eviction of {vmi} failed: {error}")
                return
            else:
                self._say(f"evicting vmi {vmi}")
            self._evicted.add(vmi.uid)

    def _say(self, line: str) -> None:
        if line not in self._said:
            print_lines([line])
        self._said.add(line)

    async def _evictee(self, vmi: VirtualMachineInstance) -> Evictee:
        uid, namespace = vmi.metadata.uid, vmi.metadata.namespace
        if uid not in self._owners:
            self._owners[uid] = await self._owner(vmi)
        owner = self._owners[uid]
        key = f"{owner.kind.short_names[0]}/{owner.name} {owner.group} {namespace}" if owner is not None else ""
        if owner is not None:
            self._places[key] = (namespace, owner)
        return Evictee(
            namespace=namespace,
            name=vmi.metadata.name,
            uid=uid,
            owner=key,
            is_ready=vmis.is_ready(vmi) and not vmis.is_deleting(vmi),
            is_bare=uid in self._bare,
        )

    async def _owner(self, vmi: VirtualMachineInstance) -> Subject | None:
        reference = controller_of(vmi.metadata)
        if reference is None:
            self._bare.add(vmi.metadata.uid)
            return None
        if reference.kind == VMS.kind:
            try:
                key = ObjectKey(vmi.metadata.namespace, reference.name)
                vm = VMS.decode(await self._session.request("GET", VMS.path(*key)))
            except NotFound:
                return None
            reference = controller_of(vm.metadata)
        return _subject_of(reference)


def _subject_of(reference: OwnerReference | None) -> Subject | None:
    kind: Kind[Any] | None = next((kind for kind in KINDS if reference and reference.kind == kind.kind), None)
    if kind is None or reference is None:
        return None
    return Subject(kind, reference.api_version.partition("/")[0], reference.name)
