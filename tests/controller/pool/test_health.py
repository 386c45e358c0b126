"""P17: the conditions of kstatus, the first problem of a pool, and the progress deadline."""

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true
from controller.kubevirt.annotations import PARTITION, POOL_FINALIZER, PROGRESS_DEADLINE, PROTECT, TAKEOVER
from controller.pool.members.snapshot import Limits
from controller.pool.members.unready_periods import Down, Recovering
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.pool.triggers import pools_of_vmi
from controller.runtime.actions import Rejected
from informers.store import Updated
from tests.builders import NOW, seconds_ago
from tests.kstatus import kstatus_of
from tests.pool_builders import pool, revision, snapshot, stores, vm_spec, vmi, vms
from tests.pool_outcomes import CREATE, QUOTA, status_of

BROKEN = {"ready": False, "printable": "ImagePullBackOff", "ready_for_s": 60}
STARTING = {"ready": False, "printable": "Starting", "ready_for_s": 60}
BOOTING = {"ready": False, "printable": "Running", "ready_for_s": 60}


def seen(owner, status) -> tuple[str, str]:
    """What kstatus says about a pool with this status."""
    conditions = [msgspec.to_builtins(each) for each in status.conditions or ()]
    item = {
        "metadata": {"generation": owner.metadata.generation},
        "status": {"observedGeneration": status.observed_generation, "conditions": conditions},
    }
    return kstatus_of(item)


def with_obstacle(of, message="Back-off pulling image", reason="ImagePullBackOff"):
    """The VMI of this VM, which cannot start."""
    built = vmi(of, ready=False, phase="Scheduling", ready_for_s=60, age_s=60)
    condition = msgspec.convert(
        {"type": "Synchronized", "status": "False", "reason": reason, "message": message},
        type(built.status.conditions[0]),
    )
    return replace(built, status=replace(built.status, conditions=(*built.status.conditions, condition)))


def with_broken_vm(owner, number=2, **changes):
    """Two VMs that are ready, and a VM whose image cannot be pulled."""
    machines = (*vms(owner, *(each for each in range(3) if each != number)), *vms(owner, number, **BROKEN))
    return machines, [*(vmi(each) for each in machines[:-1]), with_obstacle(machines[-1], **changes)]


AT_REST = {
    "all VMs are ready": ({}, [{}, {}, {}]),
    "no VM is wanted": ({"replicas": 0}, []),
    "users stopped a VM": ({}, [{}, {}, {"spec": vm_spec(run_strategy="Halted"), "ready": False}]),
    "a surplus VM is protected": ({"replicas": 2}, [{"annotations": {PROTECT: "true"}}] * 3),
    "the strategy keeps surplus VMs": ({"replicas": 2, "scaleInStrategy": {"opportunistic": {}}}, [{}, {}, {}]),
}


@pytest.mark.parametrize(("fields", "machines"), AT_REST.values(), ids=AT_REST)
def test_p17_a_pool_at_rest_has_no_condition_and_is_current(fields, machines):
    owner = pool(**fields)
    status = status_of(
        owner, *(each for number, changes in enumerate(machines) for each in vms(owner, number, **changes))
    )
    assert (status.conditions, status.problem) == (None, None)
    assert seen(owner, status).status == "Current"


def test_p10_p17_a_pool_is_reconciling_until_its_vms_have_the_finalizer_that_keeps_their_disks():
    owner = pool(scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    waiting = status_of(owner, *vms(owner, 0, 1), *vms(owner, 2, finalizers=()))
    assert [(each.type, each.reason) for each in waiting.conditions] == [("Reconciling", "Updating")]
    assert seen(owner, waiting).status == "InProgress"
    assert seen(owner, status_of(owner, *vms(owner, 0, 1, 2))).status == "Current"
    unprotected = pool()
    assert (
        seen(unprotected, status_of(unprotected, *vms(unprotected, 0, 1, 2, finalizers=(POOL_FINALIZER,)))).status
        == "Current"
    )


def test_p17_a_pool_in_progress_says_what_happens():
    owner = pool()
    status = status_of(owner, *vms(owner, 0, 1), *vms(owner, 2, **STARTING))
    reconciling = find_true(status.conditions, "Reconciling")
    assert (reconciling.reason, reconciling.message) == ("Scaling", "virtual machines are created, started or deleted")
    assert (seen(owner, status).status, status.problem) == ("InProgress", None)


def test_p17_the_message_names_the_vm_and_its_problem():
    owner = pool()
    machines, running = with_broken_vm(owner)
    status = status_of(owner, *machines, vmis=running)
    reconciling = find_true(status.conditions, "Reconciling")
    assert reconciling.message == status.problem == "web-2: ImagePullBackOff, Back-off pulling image"
    assert (status.printable_status, reconciling.reason) == ("Degraded", "Degraded")


def test_p17_the_broken_vm_with_the_lowest_ordinal_is_named():
    owner = pool(replicas=11)
    assert status_of(owner, *vms(owner, 10, 9, **BROKEN), *vms(owner, *range(9))).problem.startswith("web-9: ")


def test_p17_a_change_of_a_problems_message_changes_no_status():
    owner = pool()
    machines, running = with_broken_vm(owner, message="0/5 nodes, try 7")
    first = status_of(owner, *machines, vmis=running)
    owner = replace(owner, status=first)
    machines, running = with_broken_vm(owner, message="0/5 nodes, try 8")
    assert status_of(owner, *machines, vmis=running) == first


def test_p17_the_two_states_of_a_failing_image_pull_are_one_problem():
    owner = pool()
    machines, running = with_broken_vm(owner)
    first = status_of(owner, *machines, vmis=running)
    owner = replace(owner, status=first)
    machines = (*machines[:-1], *vms(owner, 2, **{**BROKEN, "printable": "ErrImagePull"}))
    running = [*running[:-1], with_obstacle(machines[-1], "rpc error", "ErrImagePull")]
    assert status_of(owner, *machines, vmis=running) == first


CRASH_LOOP = {"the VM fails to start": (STARTING | {"failures": 2}, False), "the guest crashes": (STARTING, True)}


@pytest.mark.parametrize(("changes", "crashes"), CRASH_LOOP.values(), ids=CRASH_LOOP)
def test_p17_a_crash_loop_is_one_problem_while_its_vm_starts_again(changes, crashes):
    owner = pool()
    down = Down("uid-web-2", seconds_ago(60), "web-1", seconds_ago(60), crashes=crashes)
    period = Recovering(down, NOW, was_ready=crashes)
    machines = (*vms(owner, 0, 1), *vms(owner, 2, **changes))
    status = status_of(owner, *machines, unready_before={"web-2": period})
    assert (status.problem, status.printable_status) == ("web-2: CrashLoopBackOff", "Degraded")


def test_p17_a_vm_that_cannot_start_is_named_with_the_reason():
    owner = pool()
    cause = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "no such instancetype"}
    machines = vms(owner, 0, ready=False, printable="Stopped", ready_for_s=60, conditions=[cause])
    status = status_of(owner, *machines, *vms(owner, 1, 2), vmis=[vmi(each) for each in vms(owner, 1, 2)])
    assert status.problem == "web-0: FailedCreate, no such instancetype"


def changed_pool(**fields):
    """A pool with a new template, and its two revisions."""
    owner = pool(spec=vm_spec(image="v2"), generation=2, **fields)
    return owner, [revision(pool(), "web-1", number=1), revision(owner, "web-2", number=2)]


RECONCILING = {"type": "Reconciling", "status": "True", "reason": "Updating", "message": ""}
LAST_VM = {
    "it boots": ({"printableStatus": "Updating"}, 58, 60, ("Updating", None)),
    # KubeVirt's CRD has no field for the word.
    "it boots, and the status has only conditions": ({"conditions": [RECONCILING]}, 58, 60, ("Updating", None)),
    "it lost its readiness": (None, 60, 300, ("Degraded", "web-2: Running, not ready")),
}


@pytest.mark.parametrize(("status", "unready_s", "running_s", "expected"), LAST_VM.values(), ids=LAST_VM)
def test_p17_the_last_vm_of_an_update_is_not_ready(status, unready_s, running_s, expected):
    owner, kept = changed_pool(status=status)
    machines = (*vms(owner, 0, 1, revision="web-2"), *vms(owner, 2, revision="web-2", **BOOTING))
    last = vmi(machines[2], ready=False, ready_for_s=unready_s, entered_s={"Running": running_s})
    found = status_of(owner, *machines, vmis=[*map(vmi, machines[:2]), last], revisions=kept)
    assert (found.printable_status, found.problem) == expected


@pytest.mark.parametrize(
    ("annotations", "expected", "shown"), [(None, "InProgress", "Updating"), ({PARTITION: "3"}, "Failed", "Degraded")]
)
def test_p17_a_stalled_pool_with_a_new_template_is_in_progress_unless_the_vm_keeps_its_template(
    annotations, expected, shown
):
    """Otherwise `helm upgrade --wait` would fail before the update has begun."""
    owner, kept = changed_pool(annotations=annotations)
    machines = (*vms(owner, 0, 1), *vms(owner, 2, **{**BROKEN, "ready_for_s": 9000}))
    status = status_of(owner, *machines, revisions=kept)
    assert (seen(owner, status).status, status.printable_status) == (expected, shown)


def unready_for(seconds, **fields):
    owner = pool(**fields)
    return owner, (*vms(owner, 0, 1), *vms(owner, 2, **{**BROKEN, "ready_for_s": seconds}))


def test_p17_a_pool_is_stalled_if_a_vm_is_not_ready_at_the_progress_deadline():
    owner, machines = unready_for(600)
    status = status_of(owner, *machines)
    assert [each.type for each in status.conditions] == ["Stalled"]
    assert status.conditions[0].reason == "ProgressDeadlineExceeded"
    assert seen(owner, status) == ("Failed", "web-2: ImagePullBackOff")
    assert status.printable_status == "Degraded"


def test_p17_the_annotation_sets_the_progress_deadline():
    for seconds, expected in (("61", "InProgress"), ("60", "Failed")):
        owner, machines = unready_for(60, annotations={PROGRESS_DEADLINE: seconds})
        assert seen(owner, status_of(owner, *machines)).status == expected


def test_p17_the_pool_is_reconciled_again_at_the_progress_deadline():
    owner, machines = unready_for(560)
    assert plan(snapshot(owner, machines)).requeue_after_s == 40
    owner, machines = unready_for(600)
    assert plan(snapshot(owner, machines)).requeue_after_s is None


def test_p17_refused_writes_stall_the_pool_after_the_progress_deadline():
    for since, expected in ((599, "InProgress"), (600, "Failed")):
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": "old"}
        owner = pool(status={"conditions": [{**failure, "lastTransitionTime": seconds_ago(since)}]})
        status = status_of(owner, outcomes=[Rejected(CREATE, QUOTA)])
        assert seen(owner, status) == (expected, "error during scale out: exceeded quota: 3 of 3")


def test_p17_an_invalid_pool_is_stalled():
    owner = pool(selector={})
    status = status_of(owner, *vms(owner, 0))
    stalled = find_true(status.conditions, "Stalled")
    assert (stalled.reason, stalled.message) == ("InvalidSpec", status.problem)
    assert "spec.selector is empty" in status.problem


def test_p17_a_pool_that_wants_more_vms_than_the_limit_is_stalled():
    owner = pool(replicas=3)
    limited = replace(snapshot(owner, vms(owner, 0, 1)), limits=Limits(max_replicas=2))
    assert find_true(next_status(limited, (), plan(limited).waits).conditions, "Stalled").reason == "ReplicasLimited"
    assert find_true(next_status(replace(limited, limits=Limits()), ()).conditions, "Stalled") is None


def test_p17_a_pool_whose_first_update_waits_for_its_user_is_stalled():
    owner = pool(spec=vm_spec(image="v2"), generation=2)
    kept = [revision(pool(), "web-1", number=1)]
    held = snapshot(owner, vms(owner, 0, 1, 2), revisions=kept)
    held = replace(held, limits=Limits(takes_over=True))
    [note] = [each for each in plan(held).actions if each.is_note and TAKEOVER in each.body.decode()]
    mark = msgspec.json.decode(note.body)["metadata"]["annotations"][TAKEOVER]
    marked = pool(spec=vm_spec(image="v2"), generation=2, annotations={TAKEOVER: mark})
    seen = replace(held, owner=marked)
    status = next_status(seen, (), plan(seen).waits)
    assert find_true(status.conditions, "Stalled").reason == "TakeoverHeld"
    proceeding = pool(spec=vm_spec(image="v2"), generation=2, annotations={TAKEOVER: "proceed"})
    assert next_status(replace(held, owner=proceeding), ()).printable_status == "Updating"


LEFT_OUT = {
    "a partition": ({"annotations": {PARTITION: "3"}}, "web-1"),
    "the strategy unmanaged": ({"updateStrategy": {"unmanaged": {}}}, "web-1"),
    "the strategy opportunistic": ({"updateStrategy": {"opportunistic": {}}}, "web-2"),
}


@pytest.mark.parametrize(("fields", "revision_of_vms"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_p17_a_pool_is_current_if_its_outdated_vms_wait_for_a_user(fields, revision_of_vms):
    owner, kept = changed_pool(**fields)
    machines = vms(owner, 0, 1, 2, revision=revision_of_vms)
    status = status_of(owner, *machines, vmis=[vmi(each, revision="web-1") for each in machines], revisions=kept)
    assert (status.updated_replicas, status.printable_status, status.conditions) == (0, "Running", None)
    assert status.current_revision == "web-1"


def test_p19_an_obstacle_of_a_vmi_triggers_its_pool():
    owner = pool()
    [machine] = vms(owner, 0, **STARTING)
    before = vmi(machine, ready=False, phase="Scheduling", ready_for_s=60, age_s=60)
    change = Updated(before, with_obstacle(machine))
    assert [key.name for key, _ in pools_of_vmi(change, stores(owner, [machine]).vms)] == ["web"]
    same = Updated(with_obstacle(machine, "try 1"), with_obstacle(machine, "try 2"))
    assert list(pools_of_vmi(same, stores(owner, [machine]).vms)) == []
