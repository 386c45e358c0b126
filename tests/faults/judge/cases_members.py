"""Cases of the invariants about members: S1 to S5, S7, S8 and S13."""

from typing import Any, Final

from msgspec.structs import replace

from tests.controlplane.documents import reference_to
from tests.faults.judge import states
from tests.faults.judge.judge import Interval, Run
from tests.faults.judge.made_history import Made, pool, ready, replica_set, vm, vmi
from tests.faults.judge.states import POOL, REVISION, SET, VM, VMI, Object
from tests.faults.judge.steps import (
    DETACHED,
    FAILED,
    KEEP,
    KEPT,
    PAUSED,
    RELABELED,
    SNAPSHOT,
    Cases,
    Step,
    a_pool,
    a_set,
    broken,
    case,
    deleted_vm,
    kept,
    new_template,
    scale,
    set_revision,
    simulator,
    steps,
    user,
    vmi_of,
    wait,
    we,
)

SURGE: Final = {states.ROLLING_UPDATE: "maxSurge=1,maxUnavailable=0"}


def disk_template(size: str = "1Gi", mode: str = "ReadWriteOnce") -> Object:
    claim = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"pvc": claim}}]}}


SHARED, LARGER, SMALLER = disk_template(mode="ReadWriteMany"), disk_template("2Gi"), disk_template("512Mi")


def pool_with_disk(leave: str | None = None, **spec: Any) -> Step:
    annotations = {states.MOST_DISRUPTIVE: leave} if leave else None
    return steps(a_pool(1, virtualMachineTemplate=disk_template(), annotations=annotations, **spec), wait(60))


def restarting_pool(**spec: Any) -> Step:
    """A pool whose VM has a newer revision than its VMI."""
    return steps(a_pool(1, **spec), vmi_of("pool-0", revision="pool-0"), wait(60))


DISKS: Final = (
    ("new disks", SHARED, None, {}, KEPT),
    ("new disks, but only a restart is allowed", SHARED, "restart", {}, broken("is deleted without a reason")),
    ("new disks, but the old ones must be kept", SHARED, None, KEEP, broken("is deleted without a reason")),
    ("new disks instead of kept ones, with leave", SHARED, "recreate", KEEP, KEPT),
    ("larger disks", LARGER, None, {}, broken("is deleted without a reason")),
    ("larger disks, with leave", LARGER, "recreate", {}, broken("is deleted without a reason")),
    ("smaller disks", SMALLER, None, {}, broken("is deleted without a reason")),
    ("smaller disks, with leave", SMALLER, "recreate", {}, KEPT),
)
OPPORTUNISTIC: Final[dict[str, Any]] = {"updateStrategy": {"opportunistic": {}}}
S1: Cases = {
    "a set creates what is missing": (a_set(3), KEPT),
    "one create too many for a constant number": case(
        a_set(3), we.member("herd-d"), we.delete(VMI, "herd-d"), broken("lacks 3 members: 4 creates, 1 deletes")
    ),
    "one create too many for a pool with a constant number": case(
        a_pool(2), KEPT, we.member("pool-2"), broken("lacks 2 members: 3 creates, 0 deletes")
    ),
    "the delete of a surplus member": (a_set(3), scale(2), we.delete(VMI, "herd-a"), KEPT),
    "a delete without a reason": case(
        a_set(2),
        user.member("herd-x"),  # so that the count of S1 does not apply
        user.delete(VMI, "herd-x"),
        wait(60),
        we.delete(VMI, "herd-a"),
        broken("without a reason"),
    ),
    "the delete of a finished VMI": case(
        a_set(1), simulator.patch(VMI, "herd-a", FAILED), we.member("herd-b"), we.delete(VMI, "herd-a"), KEPT
    ),
    "the replacement of an unready VMI, if the set asks for it": case(
        a_set(1, annotations={states.REPLACE_UNREADY: "5"}),
        simulator.patch(VMI, "herd-a", ready(False)),
        we.delete(VMI, "herd-a"),
        KEPT,
    ),
    "the replacement of a VMI that became ready a moment ago": case(
        a_set(1, annotations={states.REPLACE_UNREADY: "5"}),
        wait(60),
        *(simulator.patch(VMI, "herd-a", ready(is_ready)) for is_ready in (False, True)),
        we.delete(VMI, "herd-a"),
        KEPT,
    ),
    "a pool that may not delete": case(
        a_pool(2, scaleInStrategy={"opportunistic": {}}), scale(1), we.delete(VM, "pool-0"), broken("forbids deletions")
    ),
    **{
        f"a VM is recreated for {name}": case(
            pool_with_disk(leave, **spec), new_template(template), wait(60), we.delete(VM, "pool-0"), expected
        )
        for name, template, leave, spec, expected in DISKS
    },
    "the restart of an outdated VMI": (restarting_pool(), we.delete(VMI, "pool-0"), KEPT),
    "a restart without a reason": case(
        restarting_pool(),
        user.patch(VMI, "pool-0", {"metadata": {"labels": {states.REVISION_LABEL: "pool-1"}}}),
        we.delete(VMI, "pool-0"),
        broken("its VMI has the revision of the VM"),
    ),
    "a delete of a VMI under a strategy without restarts": case(
        restarting_pool(**OPPORTUNISTIC), we.delete(VMI, "pool-0"), broken("the update strategy forbids restarts")
    ),
    "a request to restart under a strategy without restarts": case(
        restarting_pool(**OPPORTUNISTIC),
        we.fail("update", VM, "pool-0", 202, subresource="restart"),
        broken("the update strategy forbids restarts"),
    ),
    "a restart during a snapshot": case(
        restarting_pool(),
        simulator.patch(VM, "pool-0", SNAPSHOT),
        wait(60),
        we.delete(VMI, "pool-0"),
        broken("is restarted during a snapshot"),
    ),
}


def long_ago(made: Made) -> Run:
    """A fault that covers the whole history."""
    return Run(faults=(Interval(0.0, made.now),))


S2: Cases = {
    "creates up to the wanted number": (a_set(2), scale(4), we.member("herd-c"), we.member("herd-d"), KEPT),
    "a surplus create": (a_set(2), we.member("herd-c"), broken("3 of 2 wanted")),
    "the create of a surge": (a_set(2, annotations=SURGE), we.member("herd-c"), KEPT),
    "a create beyond the surge": (
        a_set(2, annotations=SURGE),
        we.member("herd-c"),
        we.member("herd-d"),
        broken("4 of 3 wanted"),
    ),
    "a create for the number of a moment ago": (a_set(2), scale(3), scale(2), we.member("herd-c"), KEPT),
    "a create for a number of long ago, unless a fault hid the change": case(
        a_set(2), scale(3), scale(2), wait(60), we.member("herd-c"), broken("3 of 2 wanted"), kept(long_ago)
    ),
    "two replacements of one lost VMI": case(
        a_set(2), user.delete(VMI, "herd-a"), we.member("herd-c"), we.member("herd-d"), broken("3 of 2 wanted")
    ),
    "a scale-in below the wanted number": case(
        a_set(4),
        scale(2),
        we.delete(VMI, "herd-a"),
        we.delete(VMI, "herd-b"),
        KEPT,
        we.delete(VMI, "herd-c"),
        broken("leaves 1 members, 2 are wanted"),
    ),
    "terminating VMs of a pool count as gone for its scale-in": case(
        a_pool(3), user.delete(VM, "pool-2"), wait(60), scale(2), we.delete(VM, "pool-1"), broken("leaves 1 members")
    ),
}


def adopted_by_pool(made: Made) -> None:
    we.patch(VM, "pool-0", {"metadata": {"ownerReferences": [reference_to(made.owner)]}})(made)


S3: Cases = {
    "ordinals fill the gaps": (a_pool(3), deleted_vm("pool-1"), we.member("pool-1"), KEPT),
    "a gap that is not filled": case(
        a_pool(3), deleted_vm("pool-1"), wait(60), we.member("pool-3"), broken("the ordinals [1] are free")
    ),
    "a VM with another name": (user.create(pool(1)), we.member("pool-01"), broken("is no name of pool")),
    "the adoption of a VM": (user.create(pool(1)), user.create(vm("pool-0")), adopted_by_pool, broken("adopts pool-0")),
}
S4: Cases = {
    "a delete of a member by UID": (a_set(2), scale(1), we.delete(VMI, "herd-a"), KEPT),
    "a delete without the UID": (a_set(2), we.delete(VMI, "herd-a", uid=""), broken("no UID as precondition")),
    "a delete that was refused before its body was read": (a_set(2), we.fail("delete", VMI, "herd-a", 403), KEPT),
    "a refused delete whose body has no UID": case(
        a_set(2),
        we.fail("delete", VMI, "herd-a", 409, body={"kind": "DeleteOptions"}),
        broken("no UID as precondition"),
    ),
    "a VMI that its user detached": case(
        a_set(2), user.patch(VMI, "herd-a", DETACHED), we.delete(VMI, "herd-a"), broken("belongs to no owner")
    ),
    "the owner may vanish just before the delete": case(
        a_set(2),
        user.delete(SET, "herd"),
        we.delete(VMI, "herd-a"),
        KEPT,
        wait(60),
        we.delete(VMI, "herd-b"),
        broken("VirtualMachineInstance/herd-b belongs to no owner"),
    ),
    "the VMI of a VM belongs to the pool": (a_pool(1), vmi_of("pool-0"), we.delete(VMI, "pool-0"), KEPT),
    "the VMI of a detached VM": case(
        a_pool(1),
        vmi_of("pool-0"),
        user.patch(VM, "pool-0", DETACHED),
        wait(60),
        we.delete(VMI, "pool-0"),
        broken("belongs to no owner"),
    ),
    "revisions of a set, also after they have lost their owner": case(
        a_set(1),
        we.create(set_revision("old")),
        we.create(set_revision("older")),
        we.delete(REVISION, "herd-older"),
        user.patch(REVISION, "herd-old", DETACHED),
        user.delete(SET, "herd"),
        wait(60),
        we.delete(REVISION, "herd-old"),
        KEPT,
    ),
    "a whole collection": (we.fail("deletecollection", VMI, "", 200), broken("a whole collection")),
}


def adoption(*, confirm: bool = True, **more: Any) -> Step:
    """The set reads itself and adopts the VMI `orphan`."""

    def step(made: Made) -> None:
        if confirm:
            made.read(SET, made.owner["metadata"]["name"])
        we.patch(VMI, "orphan", {"metadata": {"ownerReferences": [reference_to(made.owner)]}}, **more)(made)

    return step


def create_answered_late(*, begun: bool) -> Step:
    """The answer to the create of the set comes after its read, and the create itself if it was not `begun`."""

    def step(made: Made) -> None:
        create, read = made.requests[0], made.requests[2]
        time = create.time if begun else read.answered + 0.001
        made.requests[0] = replace(create, time=time, answered=read.answered + 0.005)

    return step


ORPHAN: Final = steps(user.create(replica_set(1)), user.create(vmi("orphan")))
S5: Cases = {
    "an orphan is adopted after the owner was read": (ORPHAN, adoption(), KEPT),
    "an owner may be read before its creator gets the answer": case(
        ORPHAN,
        adoption(),
        create_answered_late(begun=True),
        KEPT,
        create_answered_late(begun=False),
        broken("by an owner that leaves"),
    ),
    "an adoption without a read": (ORPHAN, adoption(confirm=False), broken("was not read")),
    "an adoption by an owner that is being deleted": case(
        user.create({**replica_set(1), "metadata": {"name": "herd", "finalizers": ["orphan"]}}),
        user.create(vmi("orphan")),
        user.delete(SET, "herd"),
        adoption(),
        broken("by an owner that leaves"),
    ),
    "an adoption of the VMI of another controller": case(
        user.create(replica_set(1, "other")),
        user.member("orphan"),
        user.create(replica_set(1)),
        adoption(),
        broken("has a controller"),
    ),
    "an adoption without preconditions": case(
        ORPHAN, adoption(body={"metadata": {}}), broken("does not have the UID and the version")
    ),
    "an adoption against the selector": case(
        user.create(replica_set(1)),
        user.create(vmi("orphan", labels={"app": "other"})),
        adoption(),
        broken("labels do not match"),
    ),
    "a VMI whose labels stopped matching is released": case(
        a_set(1), user.patch(VMI, "herd-a", RELABELED), we.patch(VMI, "herd-a", DETACHED), KEPT
    ),
    "a release of a VMI whose labels match": case(
        a_set(1), we.patch(VMI, "herd-a", DETACHED), broken("its labels match")
    ),
    "a release without the UID": case(
        a_set(1),
        user.patch(VMI, "herd-a", RELABELED),
        we.patch(VMI, "herd-a", DETACHED, body={"metadata": {}}),
        broken("has no UID"),
    ),
}
S7: Cases = {
    "a paused owner creates no member": case(
        a_set(2),
        user.patch(SET, "herd", PAUSED),
        wait(60),
        user.patch(VMI, "herd-a", RELABELED),
        we.patch(VMI, "herd-a", DETACHED),
        KEPT,
        we.member("herd-c"),
        broken("created during a pause"),
    ),
    "a delete during a pause": case(
        a_set(2),
        user.patch(SET, "herd", PAUSED),
        we.delete(VMI, "herd-a"),
        KEPT,
        wait(60),
        we.delete(VMI, "herd-b"),
        broken("deleted during a pause"),
    ),
    "an update during a pause": case(
        a_pool(1, paused=True),
        wait(60),
        we.patch(VM, "pool-0", {"spec": {"runStrategy": "Manual"}}),
        broken("updated during a pause"),
    ),
    "a restart": (restarting_pool(), we.delete(VMI, "pool-0"), KEPT),
    "a restart during a pause": case(
        restarting_pool(paused=True), we.delete(VMI, "pool-0"), broken("is restarted during a pause")
    ),
    "a create for an owner that is being deleted": case(
        a_pool(1), user.delete(POOL, "pool"), wait(60), we.member("pool-1"), broken("its owner is being deleted")
    ),
}
