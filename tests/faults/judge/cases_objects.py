"""Cases of the invariants about the content of objects: S6 and S9 to S12."""

import copy
from typing import Any, Final

from tests.faults.judge import states
from tests.faults.judge.made_history import Made, disk, pool, ready, replica_set, vm
from tests.faults.judge.states import DATA_VOLUME, POOL, PVC, REVISION, SET, VM, VMI
from tests.faults.judge.steps import (
    DETACHED,
    KEEP,
    KEPT,
    UNCHECKED,
    UNFINALIZED,
    Cases,
    Step,
    a_pool,
    a_set,
    at_rest,
    broken,
    case,
    collector,
    deleted_vm,
    kept,
    revision,
    running_pool,
    scale,
    set_revision,
    simulator,
    steps,
    user,
    wait,
    we,
)

UNFINALIZE: Final = we.guarded_patch(VM, "pool-0", UNFINALIZED, "/metadata/finalizers/0")


def lost_finalizer(made: Made) -> None:
    """The server applies a patch to a state without the foreign finalizer, and then removes the object."""
    patched = copy.deepcopy(made.get(VM, "pool-0"))
    user.patch(VM, "pool-0", {"metadata": {"finalizers": [states.FINALIZER, "orphan"]}})(made)
    del patched["metadata"]["finalizers"]
    we.guarded_patch(VM, "pool-0", UNFINALIZED, "/metadata/finalizers/0", answer=patched)(made)


def newer_answer(made: Made) -> None:
    """The last answer has a version from after the foreign finalizer."""
    answer = made.requests[-1].answer
    assert answer is not None
    answer["metadata"]["resourceVersion"] = str(made.revision - 1)


def vm_disk(name: str = "d-0") -> Step:
    """The simulator creates a disk of the VM `pool-0`."""
    return simulator.create(lambda made: disk(DATA_VOLUME, name, made.get(VM, "pool-0")))


S6: Cases = {
    "the finalizer of a terminating VM is removed": case(
        a_pool(1), user.delete(VM, "pool-0"), UNFINALIZE, kept(at_rest)
    ),
    "a member whose disks must be kept keeps its finalizer": case(
        a_pool(1, **KEEP), we.patch(VM, "pool-0", UNFINALIZED), broken("is a member whose disks must be kept")
    ),
    "a member whose pool keeps no disks loses the finalizer": case(
        a_pool(1), broken("its pool keeps no disks", at_rest), UNFINALIZE, kept(at_rest)
    ),
    "at rest a member whose disks must be kept has the finalizer": case(
        a_pool(1, **KEEP),
        kept(at_rest),
        user.patch(VM, "pool-0", UNFINALIZED),
        broken("has no pool finalizer", at_rest),
    ),
    "the finalizers of others stay": case(
        a_pool(1),
        user.patch(VM, "pool-0", {"metadata": {"finalizers": ["x/y", states.FINALIZER]}}),
        user.delete(VM, "pool-0"),
        we.patch(VM, "pool-0", {"metadata": {"finalizers": [states.FINALIZER]}}),
        broken("the finalizers of others"),
    ),
    "a finalizer that the server lost is not the controller's fault": case(
        a_pool(1),
        user.delete(VM, "pool-0"),
        lost_finalizer,
        KEPT,
        newer_answer,
        broken("the finalizers of others on pool-0 change from ['orphan'] to []"),
    ),
    "a change of finalizers needs a precondition": case(
        a_pool(1),
        user.delete(VM, "pool-0"),
        we.patch(VM, "pool-0", UNFINALIZED, body={"metadata": {"finalizers": []}}),
        broken("without a precondition"),
    ),
    "a pool keeps its finalizer while a VM has it": case(
        a_pool(1), user.delete(POOL, "pool"), we.patch(POOL, "pool", UNFINALIZED), broken("before its VMs ['pool-0']")
    ),
    "a pool that is not being deleted keeps its finalizer": case(
        user.create(pool(0)), we.patch(POOL, "pool", UNFINALIZED), broken("is not being deleted")
    ),
    "a VM keeps the finalizer until its disks are free": case(
        a_pool(1, **KEEP), vm_disk(), deleted_vm(), broken("still owns its disks ['d-0']")
    ),
    "at rest no terminating VM has the finalizer": case(
        a_pool(1), user.delete(VM, "pool-0"), broken("terminates with", at_rest)
    ),
    "at rest no former member has the finalizer": case(
        a_pool(1), user.patch(VM, "pool-0", DETACHED), broken("is no member and has", at_rest)
    ),
}
ONE_BY_ONE: Final = {states.ROLLING_UPDATE: "maxUnavailable=1"}
S9: Cases = {
    "a pool restarts as many VMIs as may be unavailable": case(
        running_pool(3, maxUnavailable=1),
        we.delete(VMI, "pool-0"),
        KEPT,
        we.delete(VMI, "pool-1"),
        broken("makes 2 members unavailable, 1 are allowed"),
    ),
    "a VMI that is already unready is free": case(
        running_pool(3, maxUnavailable=1),
        simulator.patch(VMI, "pool-0", ready(False)),
        simulator.patch(VMI, "pool-1", ready(False)),
        wait(60),
        we.delete(VMI, "pool-0"),
        we.delete(VMI, "pool-1"),
        KEPT,
        we.delete(VMI, "pool-2"),
        broken("makes 3 members unavailable"),
    ),
    "a failure that the cache may not show yet": case(
        running_pool(2, maxUnavailable=1), simulator.patch(VMI, "pool-0", ready(False)), we.delete(VMI, "pool-1"), KEPT
    ),
    "a rolling update of a set has the same limit": case(
        a_set(3, annotations=ONE_BY_ONE),
        wait(60),
        user.patch(SET, "herd", {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}}),
        we.delete(VMI, "herd-a"),
        KEPT,
        we.delete(VMI, "herd-b"),
        broken("makes 2 members unavailable, 1 are allowed"),
    ),
    "each ready VMI of a surge allows one disruption": case(
        a_set(2, annotations={states.ROLLING_UPDATE: "maxSurge=1,maxUnavailable=0"}),
        user.patch(SET, "herd", {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}}),
        we.member("herd-c"),
        simulator.patch(VMI, "herd-c", ready()),
        wait(60),
        we.delete(VMI, "herd-a"),
        KEPT,
        we.delete(VMI, "herd-b"),
        broken("makes 1 members unavailable, 0 are allowed"),
    ),
    "the scale-in of a set is no disruption": case(
        a_set(3, annotations=ONE_BY_ONE), scale(0), *(we.delete(VMI, f"herd-{letter}") for letter in "abc"), UNCHECKED
    ),
    "a revision in use is not deleted": case(
        a_pool(1), we.delete(REVISION, "pool-1"), broken("['VirtualMachine/pool-0'] refer to it")
    ),
    "a revision that only a VMI uses is not deleted": case(
        running_pool(1),
        user.patch(VM, "pool-0", {"metadata": {"labels": {states.REVISION_LABEL: "pool-2"}}}),
        we.delete(REVISION, "pool-1"),
        broken("['VirtualMachineInstance/pool-0'] refer to it"),
    ),
    "an unused revision may be deleted": case(
        a_pool(1), we.create(revision("pool-9")), we.delete(REVISION, "pool-9"), KEPT
    ),
    "a revision with other data than the pool": case(
        user.create(pool(1)),
        we.create(lambda made: {**revision()(made), "data": {"replicas": 7}}),
        broken("is not the spec of generation 1"),
    ),
    "the revision of a set in use is not deleted": case(
        a_set(1),
        we.create(set_revision("h")),
        we.create(set_revision("old")),
        we.delete(REVISION, "herd-old"),
        KEPT,
        we.delete(REVISION, "herd-h"),
        broken("['VirtualMachineInstance/herd-a'] refer to it"),
    ),
    "a revision with another template than the set": case(
        user.create(replica_set(1)),
        we.create(set_revision("h", data={"template": {"spec": 7}})),
        broken("is not the spec of generation 1"),
    ),
    "a changed revision": case(
        a_pool(1), we.patch(REVISION, "pool-1", {"data": {"replicas": 7}}), broken("is changed")
    ),
    "a revision that is rolled out again": case(
        a_pool(1),
        user.patch(POOL, "pool", {"spec": {"replicas": 7}}),
        we.patch(REVISION, "pool-1", {"revision": 2}),
        KEPT,
    ),
    "a revision with the number of another template": case(
        a_pool(1),
        user.patch(POOL, "pool", {"spec": {"virtualMachineTemplate": {"spec": {"runStrategy": "Manual"}}}}),
        we.patch(REVISION, "pool-1", {"revision": 2}),
        broken("is not the spec of generation 2"),
    ),
}
WITH_DISK: Final = {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "d-0"}}]}}


def pool_with_disk(**more: Any) -> Step:
    return steps(
        a_pool(1, **more),
        user.patch(VM, "pool-0", WITH_DISK),
        vm_disk(),
        simulator.create(lambda made: disk(PVC, "d-0", made.get(DATA_VOLUME, "d-0"))),
    )


UNPROTECTED: Final = steps(user.create(pool(1, **KEEP)), we.member("pool-0", finalizers=[]), vm_disk())
"""A VM without the pool finalizer, and its disk. The pool keeps disks."""

LOST: Final = "the garbage collector deletes the disk d-0"
S10: Cases = {
    "a kept disk outlives its VM": case(
        pool_with_disk(**KEEP),
        user.delete(VM, "pool-0"),
        we.patch(DATA_VOLUME, "d-0", DETACHED),
        we.patch(VM, "pool-0", UNFINALIZED),
        KEPT,
    ),
    **{
        f"the loss of a {kind} that had to be kept": case(
            pool_with_disk(**KEEP), deleted_vm(), collector.delete(kind, "d-0"), broken(LOST)
        )
        for kind in (DATA_VOLUME, PVC)
    },
    "without state preservation the disks go": case(
        pool_with_disk(), deleted_vm(), collector.delete(DATA_VOLUME, "d-0"), KEPT
    ),
    "a deletion in the foreground takes the disks": case(
        pool_with_disk(**KEEP),
        user.patch(VM, "pool-0", {"metadata": {"finalizers": [states.FINALIZER, "foregroundDeletion"]}}),
        user.delete(VM, "pool-0"),
        collector.delete(DATA_VOLUME, "d-0"),
        KEPT,
    ),
    "a user who removes the finalizer loses the disks": case(
        pool_with_disk(**KEEP),
        user.delete(VM, "pool-0"),
        user.patch(VM, "pool-0", UNFINALIZED),
        collector.delete(DATA_VOLUME, "d-0"),
        KEPT,
    ),
    "a user who deletes a VM that has no finalizer yet loses the disks": case(
        UNPROTECTED, user.delete(VM, "pool-0"), collector.delete(DATA_VOLUME, "d-0"), KEPT
    ),
    "a delete by the controller without the finalizer": case(
        UNPROTECTED, we.delete(VM, "pool-0"), collector.delete(DATA_VOLUME, "d-0"), broken(LOST)
    ),
    "a disk that the controller deletes": case(
        pool_with_disk(), we.delete(PVC, "d-0"), broken("the controller deletes the disk")
    ),
    "a new VM does not take the disk of its predecessor": case(
        pool_with_disk(),
        deleted_vm(),
        we.create(lambda made: vm_with(made, "pool-0", **WITH_DISK["spec"])),
        broken("still belongs to its predecessor"),
    ),
}


def vm_with(made: Made, name: str, **spec: Any) -> dict[str, Any]:
    """A VM of the pool with these fields in its spec."""
    item = vm(name, made.owner)
    return {**item, "spec": {**item["spec"], **spec}}
