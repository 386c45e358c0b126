"""Performs the actions that read an object from the server before they patch it."""

from typing import Final

from controller.kubevirt.annotations import ADOPT_DISKS
from controller.runtime.actions import ExpandClaim, Missing, Outcome, Rejected, RemoveOwnerReference, ThreeWayMerge
from controller.runtime.execute.disk_check import DiskCheck, may_use
from controller.runtime.execute.expansion import expansion
from controller.runtime.execute.patches import Merge, ReadAndPatch, outcome_of_patch, owner_removal, template_change
from controller.runtime.workers.side_thread import SideThread, is_large
from informers.errors import ApiError, Conflict, Invalid, NotFound
from informers.meta import ObjectMeta
from informers.objects import ObjectClient, PatchType, read_meta

ATTEMPTS: Final = 4


async def read_and_patch(client: ObjectClient, action: ReadAndPatch, merge: Merge, thread: SideThread) -> Outcome:
    """Read the object and patch it, in `thread` if it is large. After ATTEMPTS conflicts, raise Conflict."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _read_and_patch_once(client, action, merge, thread)
        except Conflict:
            continue
    return await _read_and_patch_once(client, action, merge, thread)


async def _read_and_patch_once(client: ObjectClient, action: ReadAndPatch, merge: Merge, thread: SideThread) -> Outcome:
    try:
        current = await client.get(action.resource, action.key)
        meta = read_meta(current)
    except NotFound:
        return await _missing(client, action)
    except ApiError as error:
        # Only the read failed, so nothing was written. The outcome is `Rejected` even if the answer to the read was
        # lost.
        return Rejected(action, error)
    match action:
        case RemoveOwnerReference():
            patch = owner_removal(action, meta)
        case ExpandClaim():
            patch = expansion(action, meta, current)
            if isinstance(patch, bytes) and not await _may_grow(client, action, meta):
                text = f"the claim {action.key} does not belong to {action.owner.name}"
                raise Invalid(f"{text}: expand it, or annotate the pool with {ADOPT_DISKS}=true", code=422)
        case ThreeWayMerge():
            if taken := await DiskCheck(client, ()).obstacle(action):
                raise Invalid(taken, code=422)
            large = is_large(size=len(current) + len(action.old) + len(action.new))
            patch = await thread.call(template_change, merge, action, meta, current, large=large)
    if not isinstance(patch, bytes):
        return patch
    answer = await client.patch(action.resource, action.key, patch, content_type=PatchType.MERGE.value)
    return outcome_of_patch(action, patch, answer)


async def _may_grow(client: ObjectClient, action: ExpandClaim, disk: ObjectMeta) -> bool:
    """Return True if the claim, or the DataVolume that owns it, belongs to the VM, or has no owner and is usable."""
    if any(each.kind == action.source.kind for each in disk.owner_references or ()):
        disk = read_meta(await client.get(action.source, action.key))
    owners = [each.uid for each in disk.owner_references or ()]
    return action.owner_uid in owners if owners else may_use(disk, action.usable)


async def _missing(client: ObjectClient, action: ReadAndPatch) -> Outcome:
    if not isinstance(action, ExpandClaim):
        return Missing(action)
    try:
        await client.get(action.source, action.key)
    except NotFound:
        return Missing(action)
    except ApiError as error:
        return Rejected(action, error)
    return Rejected(action, ApiError(f"the claim {action.key} does not exist yet"))
