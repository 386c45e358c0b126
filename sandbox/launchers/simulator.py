"""This module runs the simulation of virt-launcher Pods, of their nodes, and of migrations."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from informers.http.client import ApiClient
from informers.informer import SharedInformer
from informers.meta import ObjectKey, ObjectMeta
from informers.store import Change
from sandbox.kind_simulator import Informers, KindSimulator, subject_of
from sandbox.launchers import nodes, pods
from sandbox.launchers.pods import MIGRATIONS, NODES, PODS, Migration, Node, Pod, uid_of_vmi
from sandbox.step import Step
from sandbox.virt_api.registration import apply
from sandbox.vmis import NODES as NODE_NAMES
from sandbox.vmis import VMIS, SimulatedVMI

POLL_S = 0.05
_BY_VMI = "vmi"
_BY_NAME = "name"


InformerOf: TypeAlias = Callable[..., SharedInformer[Any]]


class LauncherSimulator:
    """The simulators of Pods and migrations. `informer_of` adds their informers to the table `informers` of all."""

    def __init__(
        self,
        client: ApiClient,
        informer_of: InformerOf,
        informers: Informers,
        vmi_simulator: KindSimulator[SimulatedVMI],
    ) -> None:
        self._client = client
        self._vmi_simulator = vmi_simulator
        self._vmis: SharedInformer[SimulatedVMI] = informers[VMIS]
        self._pods: SharedInformer[Pod] = informer_of(PODS, **{_BY_VMI: lambda pod: filter(None, [uid_of_vmi(pod)])})
        self._nodes: SharedInformer[Node] = informer_of(NODES)
        self._migrations: SharedInformer[Migration] = informer_of(
            MIGRATIONS, **{_BY_NAME: lambda each: [str(ObjectKey(each.metadata.namespace, each.spec.vmi_name))]}
        )
        self._pod_simulator = KindSimulator(PODS, self._pod_step, client, informers)
        self._migration_simulator = KindSimulator(MIGRATIONS, self._migration_step, client, informers)
        self.simulators = (self._pod_simulator, self._migration_simulator)
        self._vmis.add_handler(self._on_vmi_change)
        self._pods.add_handler(self._on_pod_change)
        self._nodes.add_handler(self._on_node_change)

    async def create_nodes(self) -> None:
        """Create all Nodes if the cluster has none, and wait for the cache: a VMI fails without its Node in it.

        If only some are missing, a user may have deleted them, and nothing is created.
        """
        if self._nodes.store.values():
            return
        for name in NODE_NAMES:
            node, path = nodes.new_node(name, datetime.now(UTC)), NODES.path("", name)
            # The API server ignores the status in the first request.
            await apply(self._client, path, node)
            await apply(self._client, f"{path}/status", node)
        while not set(NODE_NAMES) <= self._nodes_by_name().keys():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    def node_for(self, vmi: ObjectMeta) -> str:
        bound = (pod.spec.node_name for pod in self._pods.store.by_index(_BY_VMI, vmi.uid))
        return next((name for name in bound if name), "") or nodes.node_for(vmi, self._nodes_by_name())

    def vmi_step(self, vmi: SimulatedVMI, now: datetime) -> Step:
        return (
            nodes.vmi_step(vmi, self._nodes_by_name(), self._pods_of(vmi), now)
            or nodes.evacuation_step(vmi)
            or pods.vmi_step(vmi, self._pods_of(vmi))
        )

    def _pod_step(self, pod: Pod, now: datetime, _: datetime) -> Step:
        uid = uid_of_vmi(pod)
        owner = next((each.name for each in pod.metadata.owner_references or () if each.uid == uid), "") if uid else ""
        if not owner:
            return Step()
        vmi = self._vmis.store.get(ObjectKey(pod.metadata.namespace, owner))
        is_ending = pod.metadata.deletion_timestamp is not None and vmi is not None and not vmi.is_final
        if is_ending and nodes.pod_waits(pod, self._nodes_by_name()):
            return Step()
        return pods.pod_step(pod, vmi if vmi is not None and vmi.metadata.uid == uid else None, now)

    def _migration_step(self, migration: Migration, now: datetime, _: datetime) -> Step:
        vmi = self._vmis.store.get(ObjectKey(migration.metadata.namespace, migration.spec.vmi_name))
        existing = self._pods_of(vmi) if vmi is not None else ()
        return nodes.migration_step(migration, vmi, existing, self._nodes_by_name(), now)

    def _pods_of(self, vmi: SimulatedVMI) -> tuple[Pod, ...]:
        return self._pods.store.by_index(_BY_VMI, vmi.metadata.uid)

    def _nodes_by_name(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self._nodes.store.values()}

    def _on_vmi_change(self, change: Change[SimulatedVMI]) -> None:
        vmi = subject_of(change)
        self._pod_simulator.enqueue(pod.metadata.key for pod in self._pods_of(vmi))
        self._enqueue_migrations(vmi.metadata.key)

    def _on_pod_change(self, change: Change[Pod]) -> None:
        pod = subject_of(change)
        owners = pod.metadata.owner_references or ()
        keys = [ObjectKey(pod.metadata.namespace, owner.name) for owner in owners if owner.kind == VMIS.kind]
        self._vmi_simulator.enqueue(keys)
        for key in keys:
            self._enqueue_migrations(key)

    def _on_node_change(self, _: Change[Node]) -> None:
        self._vmi_simulator.enqueue_all()
        self._pod_simulator.enqueue_all()
        self._migration_simulator.enqueue_all()

    def _enqueue_migrations(self, vmi: ObjectKey) -> None:
        found = self._migrations.store.by_index(_BY_NAME, str(vmi))
        self._migration_simulator.enqueue(migration.metadata.key for migration in found)
