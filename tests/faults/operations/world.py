"""The namespace of one sequence of operations: one owner, its children, other objects, and a controller."""

import asyncio
import copy
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from controller.kubevirt import annotations as ours
from tests.faults.admin import Answer, Api
from tests.faults.judge.states import Object, finalizers_of, is_deleting, labels_of, name_of, uid_of
from tests.faults.operations.cluster import REFUSES_CREATES, Cluster, Controller
from tests.faults.resources import CLAIMS, POOLS, REVISIONS, SETS, VMIS, VMS, VOLUMES, path_of

KindName: TypeAlias = Literal["sets", "pools"]

NAME = "herd"
LABELS = {"app": "herd"}
HOLD = "test.vmherd.dev/hold"
BEHAVIOR = "sim.vmherd.dev/behavior"
GONE_WITHIN_S = 15.0

OWNERS: Mapping[KindName, str] = {"sets": SETS, "pools": POOLS}
CHILDREN: Mapping[KindName, str] = {"sets": VMIS, "pools": VMS}
WRITTEN_BY_US = frozenset(
    {ours.ADOPTED_TEMPLATE, ours.HEALED, ours.RECREATED, ours.UNREADY, ours.PARTITION_REVISION, ours.TAKEOVER}
)
"""The controller's notes: annotations that it writes on an owner. The user did not ask for them."""


class NoTarget(Exception):
    """The error when the object that an operation changes does not exist."""


class State(Struct, frozen=True, kw_only=True):
    """The objects of a namespace at one moment. `owner` is None if there is no owner."""

    owner: dict[str, Any] | None
    vms: tuple[dict[str, Any], ...]
    vmis: tuple[dict[str, Any], ...]
    volumes: tuple[dict[str, Any], ...]
    claims: tuple[dict[str, Any], ...]
    revisions: tuple[dict[str, Any], ...]

    @property
    def objects(self) -> tuple[dict[str, Any], ...]:
        return (*self.vms, *self.vmis, *self.volumes, *self.claims, *self.revisions)


class World:
    """One namespace. Operations change it; the controller and the simulator react."""

    def __init__(self, cluster: Cluster, kind: KindName, namespace: str, manifest: dict[str, Any]) -> None:
        self.cluster = cluster
        self.kind = kind
        self.namespace = namespace
        self.controller = Controller(cluster, namespace)
        self.manifest = manifest
        """What the user asked for last: labels, annotations and spec of the owner."""

        self.problems: list[str] = []
        """Violations that an operation itself has found."""

        self.edited: set[str] = set()
        """The UIDs of the children whose spec, labels or annotations an operation changed."""

        self.strangers: dict[str, dict[str, Any]] = {}
        """Objects that the controller must not change, by UID. Each object is as the last operation left it."""

        self.owner_uids: set[str] = set()
        """The UIDs that the owner has had."""

        self.preserved = False
        """True if an operation has changed `scaleInStrategy`, or has deleted a VM and orphaned its disks.

        Then the disks of deleted VMs may exist.
        """

        self.refuses_creates = False
        """Whether a policy refuses all creates of VMs."""

        self.forced = False
        """Whether a user removed the finalizer of a pool by force."""

        self.checks: Mapping[str, int] = {}
        """How often the judge checked each invariant."""

        self.restarts: list[str] = []
        """The stages in which a restarted controller was judged."""

        self.began = time.monotonic()
        self.trace: list[str] = []
        self._background: set[asyncio.Task[None]] = set()
        self._counter = iter(range(10**9))

    @property
    def api(self) -> Api:
        return self.cluster.api

    @property
    def owner_path(self) -> str:
        return self.path(OWNERS[self.kind], NAME)

    @property
    def child_plural(self) -> str:
        return CHILDREN[self.kind]

    def path(self, plural: str, name: str = "") -> str:
        return path_of(plural, self.namespace, name)

    def number(self) -> int:
        """A number that was not used in this namespace before."""
        return next(self._counter)

    async def owner(self) -> dict[str, Any] | None:
        answer = await self.api.get(self.owner_path)
        return answer.document if answer.ok else None

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start this work as a task. The next operations run at the same time."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def join(self) -> None:
        """Wait until all background work is done."""
        if self._background:
            await asyncio.wait(self._background)

    async def create_owner(self) -> Answer:
        answer = await self.api.send("POST", self.path(OWNERS[self.kind]), copy.deepcopy(self.manifest))
        if answer.ok:
            self.owner_uids.add(answer.document["metadata"]["uid"])
        return answer

    async def change_owner(self, change: Any, *, subresource: str = "") -> Answer:
        """Apply a merge patch to the owner, and update `manifest`."""
        answer = await self.api.merge(self.owner_path + subresource, change)
        if answer.ok:
            await self.note_manifest()
        return answer

    async def note_manifest(self) -> None:
        owner = await self.owner()
        if owner is not None and not is_deleting(owner):
            self.manifest = manifest_of(owner)

    async def recreate_owner(self) -> str:
        """Create the owner again as soon as its name is free.

        If the old owner still exists after two seconds, remove the finalizers that operations have added.
        """
        give_up = time.monotonic() + GONE_WITHIN_S
        released = False
        while True:
            answer = await self.create_owner()
            if answer.ok or answer.code != 409:
                return str(answer.code)
            owner = await self.owner()
            if owner is not None and not is_deleting(owner):
                return "exists"
            if time.monotonic() > give_up:
                return "still there"
            if not released and time.monotonic() > give_up - GONE_WITHIN_S + 2:
                await self.drop_holds()
                released = True
            await asyncio.sleep(0.1)

    async def refuse_creates(self, *, refused: bool) -> Answer:
        """Let the cluster's policy refuse all creates of VMs in this namespace, or let them pass."""
        self.refuses_creates = refused
        labels = {REFUSES_CREATES: "true" if refused else None}
        return await self.api.merge(f"/api/v1/namespaces/{self.namespace}", {"metadata": {"labels": labels}})

    async def child(self, which: int) -> dict[str, Any]:
        """One of the VMs of the namespace for a pool, or of the VMIs for a set. Raises NoTarget."""
        children = await self.api.items(self.path(self.child_plural))
        if not children:
            raise NoTarget("no child")
        return children[which % len(children)]

    async def change_child(self, child: dict[str, Any], change: Any) -> Answer:
        """Apply a merge patch to this child. A child that is gone or changed is no error."""
        meta = child["metadata"]
        return await self.api.merge(self.path(self.child_plural, meta["name"]), with_uid(change, meta))

    async def delete(self, plural: str, item: dict[str, Any], propagation: str = "Background") -> Answer:
        """Delete this object."""
        meta = item["metadata"]
        self.strangers.pop(meta["uid"], None)
        options = {"propagationPolicy": propagation, "preconditions": {"uid": meta["uid"]}}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return await self.api.send("DELETE", self.path(plural, meta["name"]), body)

    async def state(self) -> State:
        plurals = (VMS, VMIS, VOLUMES, CLAIMS, REVISIONS)
        lists = await asyncio.gather(*(self.api.items(self.path(plural)) for plural in plurals))
        vms, vmis, volumes, claims, revisions = map(tuple, lists)
        kept = tuple(each for each in revisions if not each["metadata"]["name"].startswith("revision-start-vm-"))
        return State(owner=await self.owner(), vms=vms, vmis=vmis, volumes=volumes, claims=claims, revisions=kept)

    async def drop_holds(self) -> None:
        """Remove the foreign finalizers that operations have added."""
        for plural in (OWNERS[self.kind], VMS, VMIS):
            for item in await self.api.items(self.path(plural)):
                if HOLD in finalizers_of(item):
                    await self.remove_finalizer(plural, item, HOLD)

    async def remove_finalizer(self, plural: str, item: dict[str, Any], finalizer: str) -> Answer:
        """Remove one finalizer of an object. Repeat if another writer changes the object."""
        path = self.path(plural, name_of(item))
        for _ in range(10):
            answer = await self.api.get(path)
            if not answer.ok or uid_of(answer.document) != uid_of(item):
                return answer
            answer = await self.set_finalizer(path, answer.document, finalizer, present=False)
            if answer.code != 409:
                return answer
        return answer

    async def set_finalizer(self, path: str, item: dict[str, Any], finalizer: str, *, present: bool) -> Answer:
        """Add or remove one finalizer, if no other client changed the object in between."""
        names = [each for each in finalizers_of(item) if each != finalizer] + ([finalizer] if present else [])
        own = {key: item["metadata"][key] for key in ("uid", "resourceVersion")}
        return await self.api.merge(path, {"metadata": {"finalizers": names, **own}})


def manifest_of(owner: Mapping[str, Any]) -> dict[str, Any]:
    """What a user would write to create this owner."""
    meta = owner["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key not in WRITTEN_BY_US}
    metadata = {"name": meta["name"], "labels": meta.get("labels") or {}, "annotations": annotations}
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "metadata": metadata,
        "spec": copy.deepcopy(owner["spec"]),
    }


def with_uid(change: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch, for the object with this UID only."""
    return {**change, "metadata": {**change.get("metadata", {}), "uid": meta["uid"]}}


def matches(item: Object) -> bool:
    """Whether the owners' selector matches the labels of an object."""
    return LABELS.items() <= labels_of(item).items()
