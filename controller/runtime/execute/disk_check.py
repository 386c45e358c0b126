"""The disks of other objects: a create waits until they are gone, or may be used (P3, P10, P21).

A new VM uses its disks by name. A disk may still belong to an earlier VM, until the garbage collector deletes it, or to
a VM of another pool with the same dataVolumeTemplate. Two VMs must never use one disk, so the new VM waits. A disk
without an owner may be a user's, or one that was kept for a pool. KubeVirt would give it to the new VM and delete it
with the VM, so the pool must allow it. No cache contains disks, so the server is asked before each create.

The first create of a stage reads its disks one by one: a full quota would reject it, and the others. These share one
list of metadata for each kind of disk, if it is not too long and does not fail.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from controller.kubevirt.annotations import ADOPT_DISKS, KEPT_FOR, USED_FOR
from controller.runtime.actions import AnyResource, Create, ThreeWayMerge
from informers.errors import AnswerTooLarge, ApiError, NotFound
from informers.meta import ObjectKey, ObjectMeta, labels_of
from informers.objects import ObjectClient, PatchType, read_meta
from informers.resource import UNDECODABLE, Page, PartialObject

FEW: Final = 10
"""Up to this number of disks, single reads are cheaper than a list."""

PAGE: Final = 500
"""The maximum number of disks in one page of a list. The decoding of a page must not block the event loop for long."""

LISTED_FOR_EACH: Final = 10
"""A list may have this number of disks for each disk that is needed. A longer list costs more than single reads."""

Place: TypeAlias = tuple[AnyResource, str]
"""A kind of disks in a namespace."""


_decode_page: Final = msgspec.json.Decoder(Page[PartialObject]).decode


async def metadata_pages(
    client: ObjectClient, place: Place, *, selector: str = ""
) -> AsyncIterator[Page[PartialObject]]:
    """Yield the pages of a list of metadata, with fewer objects after a page that is too large. Raise ApiError, or one
    of UNDECODABLE if it is no list.
    """
    token, limit = "", PAGE
    while True:
        try:
            body = await client.list_metadata(*place, limit=limit, continue_=token, selector=selector)
        except AnswerTooLarge:
            if limit == 1:
                raise
            limit = max(limit // 8, 1)
            continue
        page, limit = _decode_page(body), min(2 * limit, PAGE)
        yield page
        token = page.metadata.continue_ or ""
        if not token:
            return


def may_use(disk: ObjectMeta, usable: tuple[str, ...] | None) -> bool:
    """Return True if a disk without an owner is one of `usable` (see `Create`)."""
    return usable is None or pool_of(disk) in usable


def pool_of(disk: ObjectMeta) -> str:
    """Return the label of the pool that has kept the disk, or ""."""
    labels = labels_of(disk)
    return labels.get(KEPT_FOR) or labels.get(USED_FOR, "")


class DiskCheck:
    """Tells for each create of one stage whether the create must wait, and why."""

    def __init__(self, client: ObjectClient, creates: Iterable[Create]) -> None:
        self._client = client
        self._is_first = True
        self._names: dict[Place, set[str]] = defaultdict(set)
        for create in creates:
            for resource, key in create.reusable_disks:
                self._names[resource, key.namespace].add(key.name)
        self._locks: dict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listed: dict[Place, Mapping[str, ObjectMeta] | None] = {}
        self._kept: dict[ObjectKey, list[tuple[AnyResource, ObjectMeta]]] = defaultdict(list)

    async def obstacle(self, create: Create | ThreeWayMerge) -> str:
        """Return which disk is not free, so that the action must wait, or "". Raise ApiError."""
        uid = create.uid if isinstance(create, ThreeWayMerge) else None
        lists, self._is_first = not self._is_first, False
        for resource, key in create.reusable_disks:
            disk = await self._find(resource, key, lists=lists)
            if disk is None:
                continue
            if disk.deletion_timestamp is not None:
                return f"the disk {key.name} is being deleted"
            references = [each for each in disk.owner_references or () if each.kind == create.resource.kind]
            owners = [each.name for each in references if each.uid != uid]
            if create.key.name in owners:
                return f"the disk {key.name} still belongs to an earlier {create.key.name}, and will be deleted with it"
            if owners:
                return (
                    f"the disk {key.name} belongs to {owners[0]}; give the dataVolumeTemplates of each pool own names"
                )
            if not disk.owner_references and not may_use(disk, create.usable):
                pool = pool_of(disk)
                whose = f"was kept for the pool {pool}" if pool else "has no owner"
                return f"the disk {key.name} {whose}: delete it, or annotate the pool with {ADOPT_DISKS}=true to use it"
            self._note_kept(create, resource, disk)
        return ""

    def _note_kept(self, create: Create | ThreeWayMerge, resource: AnyResource, disk: ObjectMeta) -> None:
        if KEPT_FOR in labels_of(disk):
            self._kept[create.key].append((resource, disk))

    async def taken_before(self, create: Create) -> None:
        """Do the same as `taken`, if the answer to an earlier create was lost. Raise ApiError."""
        for resource, key in create.reusable_disks:
            if (disk := await self._find(resource, key, lists=False)) is not None:
                self._note_kept(create, resource, disk)
        await self.taken(create)

    async def taken(self, create: Create) -> None:
        """Change the label of kept disks that the new VM uses, because users delete kept disks by it. KubeVirt makes
        the VM their owner later. Until then no other pool may use them. After an error the label stays as it is.
        """
        for resource, disk in self._kept.pop(create.key, ()):
            labels = {KEPT_FOR: None, USED_FOR: labels_of(disk)[KEPT_FOR]}
            body = msgspec.json.encode({"metadata": {"uid": disk.uid, "labels": labels}})
            with suppress(ApiError):
                await self._client.patch(resource, disk.key, body, content_type=PatchType.MERGE.value)

    async def _find(self, resource: AnyResource, key: ObjectKey, *, lists: bool) -> ObjectMeta | None:
        place = resource, key.namespace
        if lists and len(self._names[place]) > FEW:
            async with self._locks[place]:
                if place not in self._listed:
                    self._listed[place] = await self._list(place)
            listed = self._listed[place]
            if listed is not None:
                return listed.get(key.name)
        try:
            return read_meta(await self._client.get(resource, key))
        except NotFound:
            return None

    async def _list(self, place: Place) -> Mapping[str, ObjectMeta] | None:
        """Return the existing disks that the creates need, by name. Return None if the list is too long or fails."""
        names = self._names[place]
        found: dict[str, ObjectMeta] = {}
        try:
            async for page in metadata_pages(self._client, place):
                found |= {each.metadata.name: each.metadata for each in page.items or () if each.metadata.name in names}
                if (page.metadata.remaining or 0) > LISTED_FOR_EACH * len(names):
                    return None
        except NotFound:
            return {}
        except (ApiError, *UNDECODABLE):
            return None
        return found
