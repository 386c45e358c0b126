"""Cases of the invariants about the fields of objects: S11 and S12."""

from typing import Any, Final

from tests.faults.judge.cases_objects import vm_with
from tests.faults.judge.made_history import Made, pool, replica_set, vm, vmi
from tests.faults.judge.states import POOL, REVISION, REVISION_LABEL, ROLLED_BACK, SET, VM, VMI
from tests.faults.judge.steps import (
    DETACHED,
    KEPT,
    UNFINALIZED,
    Cases,
    Step,
    a_pool,
    a_set,
    broken,
    case,
    deleted_vm,
    revision,
    set_revision,
    steps,
    user,
    wait,
    we,
)

BOTH: Final = steps(a_pool(1), a_set(1))
FOREIGN: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    (SET, "herd", {"spec": {"replicas": 9}}),
    (SET, "herd", {"metadata": {"annotations": {"vmherd.dev/x": "y"}}}),
    (POOL, "pool", {"spec": {"replicas": 9}}),
    (POOL, "pool", {"metadata": {"annotations": {"x": "y"}}}),
    (VMI, "herd-a", {"metadata": {"labels": {"x": "y"}}}),
    (VMI, "herd-a", {"status": {"phase": "Failed"}}),
    (VM, "pool-0", {"status": {"ready": True}}),
    (REVISION, "pool-1", {"data": {"replicas": 9}}),
)
"""Fields of other writers."""

LARGER: Final = {"template": {"spec": {"domain": {"memory": 2}}}}


def update(change: dict[str, Any]) -> Step:
    """Update the VM pool-0 to a new template with more memory."""
    return steps(
        user.patch(POOL, "pool", {"spec": {"virtualMachineTemplate": {"spec": LARGER}}}),
        we.create(lambda made: {**revision("pool-2")(made), "revision": 2}),
        we.patch(VM, "pool-0", {"metadata": {"labels": {REVISION_LABEL: "pool-2"}}, "spec": change}),
    )


def update_of_volumes() -> Step:
    spec = {"domain": {"memory": 2}, "volumes": [{"configMap": {"name": "c-0"}}]}
    return update({"template": {"spec": spec}})


def pool_with(**template: Any) -> dict[str, Any]:
    """A pool with these fields in the template of its VMs."""
    item = pool(1)
    item["spec"]["virtualMachineTemplate"] = {**item["spec"]["virtualMachineTemplate"], **template}
    return item


def pool_with_disk() -> dict[str, Any]:
    template = pool(1)["spec"]["virtualMachineTemplate"]
    return pool_with(spec={**template["spec"], "dataVolumeTemplates": [{"metadata": {"name": "d"}}]})


def with_empty_volumes(made: Made) -> dict[str, Any]:
    item = vm("pool-0", made.owner)
    item["spec"]["template"]["spec"] |= {"volumes": []}
    return item


S11: Cases = {
    "own fields may be written": case(
        BOTH,
        we.report(SET, "herd", replicas=1),
        we.patch(POOL, "pool", {"metadata": {"annotations": {"vmherd.dev/healed": "0"}}}),
        we.patch(VMI, "herd-a", DETACHED),
        KEPT,
    ),
    **{
        f"a field of another writer: {kind} {change}": (BOTH, we.patch(kind, name, change), broken("changes ['/"))
        for kind, name, change in FOREIGN
    },
    "a pool of the same name has its own revisions": case(
        a_pool(1),
        deleted_vm(),
        user.delete(POOL, "pool"),
        we.patch(POOL, "pool", UNFINALIZED),
        user.delete(REVISION, "pool-1"),
        user.create(pool_with(metadata={"labels": {"app": "herd", "new": "yes"}})),
        we.create(revision()),
        we.member("pool-0", labels={"new": "yes"}),
        KEPT,
        we.member("pool-1"),
        broken("pool-1 differs from its template"),
    ),
    "a status patch changes only the status": case(
        a_pool(1),
        we.patch(POOL, "pool", {**UNFINALIZED, "status": {"replicas": 1}}, subresource="status"),
        broken("changes ['/metadata/finalizers']"),
    ),
    "an update changes what the template changed": (a_pool(1), update(LARGER), KEPT),
    "an update that reverts a change of the user": case(
        a_pool(1),
        user.patch(VM, "pool-0", {"spec": {"runStrategy": "Halted"}}),
        update({"runStrategy": "Always", **LARGER}),
        broken("changes ['/spec/runStrategy']"),
    ),
    "a change of nameGeneration may change volumes": case(
        a_pool(1),
        user.patch(POOL, "pool", {"spec": {"nameGeneration": {"appendIndexToConfigMapRefs": True}}}),
        update_of_volumes(),
        KEPT,
    ),
    "nothing else may change volumes": (a_pool(1), update_of_volumes(), broken("/spec/template/spec/volumes")),
    "an empty list equals an absent list": case(
        user.create(pool(1)), we.create(revision()), we.create(with_empty_volumes), KEPT
    ),
    "a VMI that differs from its template": case(
        user.create(replica_set(2)),
        we.create(lambda made: {**vmi("herd-a", made.owner), "spec": {"domain": {"unknown": [1, 2.5]}}}),
        broken("differs from its template"),
    ),
    "a VMI of a set that has returned has the noted template": case(
        a_set(1),
        we.create(set_revision("old")),
        user.patch(SET, "herd", {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}}),
        wait(60),
        we.patch(SET, "herd", {"metadata": {"annotations": {ROLLED_BACK: "new to herd-old"}}}),
        we.member("herd-b"),
        KEPT,
        we.patch(SET, "herd", {"metadata": {"annotations": {ROLLED_BACK: None}}}),
        wait(60),
        we.member("herd-c"),
        broken("herd-c differs from its template"),
    ),
    "a VM has the template with its ordinal in names": case(
        user.create(pool_with_disk()),
        we.create(revision()),
        we.create(lambda made: vm_with(made, "pool-0", dataVolumeTemplates=[{"metadata": {"name": "d-0"}}])),
        KEPT,
        we.create(lambda made: vm_with(made, "pool-1", dataVolumeTemplates=[{"metadata": {"name": "d-0"}}])),
        broken("pool-1 differs from its template"),
    ),
}
CONDITION: Final = {"type": "Foreign", "status": "True"}
GUARDS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("a foreign annotation", {"metadata": {"uid": "u", "annotations": {"other": "x"}}}, "no precondition"),
    ("an own annotation without a UID", {"metadata": {"annotations": {"vmherd.dev/healed": "0"}}}, "no precondition"),
    ("a status without a version", {"metadata": {"uid": "u"}, "status": {"replicas": 1}}, "no precondition"),
    ("a JSON patch", [{"op": "remove", "path": "/metadata/finalizers/0"}], "tests no UID"),
)


def note(made: Made) -> None:
    """The controller writes an annotation of its own, with the UID as the precondition."""
    change = {"metadata": {"uid": made.owner["metadata"]["uid"], "annotations": {"vmherd.dev/healed": "0"}}}
    we.patch(POOL, "pool", change, body=change)(made)


def vmi_of_two_owners(made: Made) -> dict[str, Any]:
    item = vmi("herd-a", made.get(SET, "herd"))
    other = made.get(SET, "other")["metadata"]["uid"]
    item["metadata"]["ownerReferences"].append({"kind": "X", "name": "x", "uid": other})
    return item


S12: Cases = {
    "patches with preconditions": (a_pool(1), we.report(POOL, "pool", replicas=1), note, KEPT),
    **{
        f"{name} without a precondition": case(
            a_pool(1), we.patch(POOL, "pool", {"status": {"replicas": 1}}, body=body), broken(text)
        )
        for name, body, text in GUARDS
    },
    "a replacement of the whole object": case(
        a_pool(1),
        lambda made: made.fail("update", POOL, "pool", 200, body=made.owner),
        broken("replaces the whole object"),
    ),
    "the conditions of others stay": case(
        a_set(1),
        user.patch(SET, "herd", {"status": {"conditions": [CONDITION]}}),
        we.report(SET, "herd", conditions=[CONDITION], replicas=1),
        KEPT,
        we.report(SET, "herd", conditions=[]),
        broken("loses the conditions ['Foreign']"),
    ),
    "a release removes one owner only": case(
        user.create(replica_set(1)),
        user.create(replica_set(1, "other")),
        we.create(vmi_of_two_owners),
        we.patch(VMI, "herd-a", DETACHED),
        broken("loses several owners"),
    ),
}
