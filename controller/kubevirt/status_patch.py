"""How a status is written: all of it, when it differs, to just this version of its owner (R11, P17)."""

from __future__ import annotations

import msgspec
from msgspec.structs import fields, replace

from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus


def status_patch(owner: ReplicaSet | Pool, new: ReplicaSetStatus | PoolStatus) -> bytes | None:
    """The merge patch that makes `new` the status of just this version of its owner; None where it already is.

    The version is what keeps it from another owner of the same name: the API server passes over a UID in a patch of a
    status. All fields are in it each time: null takes one away, and a list is replaced whole.
    """
    old = owner.status or type(new)()
    if replace(old, conditions=old.conditions or None) == new:
        return None
    metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    status = {field.encode_name: getattr(new, field.name) for field in fields(new)}
    return msgspec.json.encode({"metadata": metadata, "status": status})
