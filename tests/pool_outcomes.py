"""Helpers for tests of a pool's status and conditions after the outcomes of its actions."""

import msgspec

from controller.apimachinery.conditions import Condition
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, VM_REQUESTS, VMIS, VMS
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, Patch, RemoveOwnerReference, Restart, ThreeWayMerge
from informers.errors import Forbidden, ServerError, TransportError
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests.builders import seconds_ago
from tests.pool_builders import POOLS, pool, snapshot

KEY = ObjectKey("default", "vm-pool-cirros-0")
CREATE = Create(resource=VMS, key=KEY, body=b"{}", owner_uid="uid-of-the-pool", why="2 of 3 VMs exist")
DELETE = Delete(resource=VMS, key=KEY, uid="uid", why="surplus: 4 VMs exist, 3 are wanted")
MERGE = ThreeWayMerge(
    resource=VMS, key=KEY, uid="uid", old=b"{}", new=b"{}", why="restart, from revision web-1 to web-2"
)
RESTART = Delete(resource=VMIS, key=KEY, uid="uid", why="its template is older than revision web-2")
_OF_VMI = {"instance": VMIS, "instance_uid": "vmi", "requests": VM_REQUESTS, "subresource": "restart"}
REQUESTED_RESTART = Restart(resource=VMS, key=KEY, uid="uid", why=RESTART.why, **_OF_VMI)
RELABEL = Patch(resource=VMIS, key=KEY, body=b"{}", type=PatchType.MERGE, why="")
REMOVE_FINALIZER = Patch(resource=VMS, key=KEY, body=b"{}", type=PatchType.JSON, why="")
NOTE = Patch(resource=POOLS, key=KEY, body=b"{}", type=PatchType.MERGE, why="", is_note=True)
REMOVE_OWNER = RemoveOwnerReference(resource=DATA_VOLUMES, key=KEY, owner_uid="uid", why="")
CREATE_REVISION = Create(resource=CONTROLLER_REVISIONS, key=KEY, body=b"{}", owner_uid="uid-of-the-pool", why="")
DELETE_REVISION = Delete(resource=CONTROLLER_REVISIONS, key=KEY, uid="uid", why="")
QUOTA = Forbidden("exceeded quota: 3 of 3", code=403)
LOST = TransportError("connection reset", sent=True)
WEBHOOK = ServerError("failed calling webhook", code=500)

FAILURE = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedScaleOut",
    "message": "error during scale out: exceeded quota: 3 of 3",
    "lastProbeTime": seconds_ago(60),
    "lastTransitionTime": seconds_ago(60),
}
PAUSED = FAILURE | {"type": "ReplicaPaused", "reason": "SuccessfulPaused", "message": "Pool controller is paused"}
FOREIGN = {"type": "Audited", "status": "False", "reason": "Never", "lastTransitionTime": seconds_ago(9000)}


def condition(document) -> Condition:
    return msgspec.convert(document, Condition)


def status_of(owner, *machines, outcomes=(), **circumstances) -> PoolStatus:
    return next_status(snapshot(owner, machines, **circumstances), outcomes)


def failure_of(outcomes, *, before=None, settled=True, **changes) -> Condition | None:
    """The condition `ReplicaFailure` after these outcomes. The argument `before` is the earlier condition."""
    owner = pool(status={"conditions": [before] if before else None}, **changes)
    conditions = status_of(owner, outcomes=outcomes, settled=settled).conditions
    return next((each for each in conditions or () if each.type == "ReplicaFailure"), None)
