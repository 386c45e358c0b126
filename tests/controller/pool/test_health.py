"""P17, P22: the conditions of a pool, its first problem, and what waits or fails."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, time_text
from controller.kubevirt.annotations import PARTITION, POOL_FINALIZER, PROTECT
from controller.kubevirt.resources import PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.failures import LONGEST_CAUSE
from controller.pool.plan import plan
from controller.pool.status import next_status, transition_notices
from controller.replicas.kstatus import dated
from controller.runtime.actions import Rejected
from tests.builders import NOW, seconds_ago
from tests.fakes.requests import Request
from tests.kstatus import kstatus_after
from tests.pool_builders import pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import CREATE, OFFLINE, QUOTA, changed_pool, status_of
from tests.pool_simulation import PoolSimulation

BROKEN = {"ready": False, "printable": "ImagePullBackOff", "ready_for_s": 60}
STARTING = {"ready": False, "printable": "Starting", "ready_for_s": 60}
BOOTING = {"ready": False, "printable": "Running", "ready_for_s": 60}


def test_p10_p17_a_pool_is_reconciling_until_its_vms_have_the_finalizer_that_keeps_their_disks():
    owner = pool(scaleInStrategy=OFFLINE)
    waiting = status_of(owner, *vms(owner, 0, 1), *vms(owner, 2, finalizers=()))
    conditions = [(each.type, each.reason) for each in waiting.conditions[1:]]
    assert conditions == [("Reconciling", "Updating"), ("Progressing", "Updating")]
    assert kstatus_after(owner, waiting).status == "InProgress"
    assert kstatus_after(owner, status_of(owner, *vms(owner, 0, 1, 2))).status == "Current"
    needless = status_of(pool(), *vms(pool(), 0, 1, 2, finalizers=(POOL_FINALIZER,)))
    assert kstatus_after(pool(), needless).status == "Current"


RECONCILING = {"type": "Reconciling", "status": "True", "reason": "Updating", "message": ""}
LAST_VM = {
    "it boots": ({"printableStatus": "Updating"}, 58, 60, ("Updating", None)),
    # KubeVirt's CRD has no field for the word.
    "it boots, and the status has only conditions": ({"conditions": [RECONCILING]}, 58, 60, ("Updating", None)),
    "it lost its readiness": (None, 60, 300, ("Degraded", "web-2: Running, GuestNotRunning")),
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
    assert (kstatus_after(owner, status).status, status.printable_status) == (expected, shown)


def test_p17_a_vm_that_is_paused_after_failed_starts_is_paused_and_in_no_crash_loop():
    machine = vm(owner=OWNER, ready=False, printable="Paused", failures=2)
    paused = vmi(machine, ready=False, conditions=[Condition(type="Paused", status="True")])
    assert status_of(OWNER, machine, vmis=[paused]).problem.startswith("web-0: Paused")


def unready_for(seconds, **fields):
    owner = pool(**fields)
    return owner, (*vms(owner, 0, 1), *vms(owner, 2, **{**BROKEN, "ready_for_s": seconds}))


def test_p17_a_pool_is_stalled_if_a_vm_is_not_ready_at_the_progress_deadline():
    owner, machines = unready_for(560)
    assert plan(snapshot(owner, machines)).requeue_after_s == 40
    owner, machines = unready_for(600)
    assert plan(snapshot(owner, machines)).requeue_after_s is None
    status = status_of(owner, *machines)
    assert [(each.type, each.status, each.reason) for each in status.conditions[1:]] == [
        ("Stalled", "True", "ProgressDeadlineExceeded"),
        ("Progressing", "False", "ProgressDeadlineExceeded"),
    ]
    assert kstatus_after(owner, status) == ("Failed", "web-2: ImagePullBackOff, GuestNotRunning")
    assert status.printable_status == "Degraded"


def test_p17_refused_writes_stall_the_pool_after_the_progress_deadline():
    for since, expected in ((599, "InProgress"), (600, "Failed")):
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": "old"}
        owner = pool(status={"conditions": [{**failure, "lastTransitionTime": seconds_ago(since)}]})
        status = status_of(owner, outcomes=[Rejected(CREATE, QUOTA)])
        assert kstatus_after(owner, status) == (expected, "error during scale out: exceeded quota: 3 of 3")


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
    assert (status.updated_replicas, status.printable_status) == (0, "Running")
    assert [each.type for each in status.conditions] == ["Available", "Progressing"]
    assert status.current_revision == "web-1"


MESSAGE = 'VirtualMachineInstancetype.instancetype.kubevirt.io "u1.huge" not found'


def failing(message=MESSAGE, status="True"):
    failure = {"type": "Failure", "status": status, "reason": "FailedCreate", "message": message}
    return {**failure, "lastTransitionTime": seconds_ago(60)}


NOT_STARTED = {"ready": False, "printable": "Stopped", "conditions": [failing()]}
OWNER = pool(replicas=3)


def failure_of(*machines, owner=OWNER, **more):
    running = [vmi(each) for each in machines if each.status.printable_status == "Running"]
    status = status_of(owner, *machines, vmis=more.pop("vmis", running), **more)
    return next((each for each in status.conditions or () if each.type == "VirtualMachineFailure"), None)


def test_p17_a_long_cause_is_cut():
    message = failure_of(*vms(OWNER, 0, **{**NOT_STARTED, "conditions": [failing(message="x" * 9000)]})).message
    assert len(message) < LONGEST_CAUSE + 60
    assert message.endswith("xxx...")


SILENT = {
    "its user stopped it": {**NOT_STARTED, "spec": vm_spec(run_strategy="Halted")},
    "it is being deleted": {**NOT_STARTED, "deleting": True},
    "the failure is over": {**NOT_STARTED, "conditions": [failing(status="False")]},
    "it has no failure": {**NOT_STARTED, "conditions": []},
}


@pytest.mark.parametrize("changes", SILENT.values(), ids=SILENT)
def test_p17_other_vms_give_no_condition(changes):
    assert failure_of(*vms(OWNER, 0, **changes)) is None


def test_p17_vms_that_cannot_start_give_a_condition_and_one_event():
    told = status_of(OWNER, *vms(OWNER, 0, **NOT_STARTED), vmis=())
    more = status_of(replace(OWNER, status=told), *vms(OWNER, 0, 1, **NOT_STARTED), vmis=())
    late, notice = transition_notices(None, told)
    assert (notice.reason, notice.warning) == ("VirtualMachineFailure", True)
    assert (late.reason, late.warning) == ("ProgressDeadlineExceeded", True)
    assert notice.message == f"1 of 1 virtual machines cannot start; web-0: {MESSAGE}"
    failure = failure_of(*vms(OWNER, 0), *vms(OWNER, 1, 2, **NOT_STARTED))
    assert (failure.status, failure.reason, failure.last_transition_time) == ("True", "FailedCreate", NOW)
    assert failure.message == f"2 of 3 virtual machines cannot start; web-1: {MESSAGE}"
    assert transition_notices(told, more) == ()
    assert transition_notices(more, status_of(OWNER, *vms(OWNER, 0))) == ()


OLD, NEW = pool(replicas=3), pool(replicas=3, generation=2, maxUnavailable=1, spec=vm_spec(image="v2"))
REVISIONS = [revision(OLD, number=1), revision(NEW, number=2)]


def stall_of(machines, **more) -> str:
    """The message of the condition Stalled, or ""."""
    status = next_status(snapshot(NEW, machines, revisions=REVISIONS, **more), ())
    return next((each.message or "" for each in status.conditions or () if each.type == "Stalled"), "")


def stuck(minutes: int) -> VirtualMachine:
    found = vm("web-0", owner=NEW, deleting=True, finalizers=("backup.example/hold",))
    return replace(found, metadata=replace(found.metadata, deletion_timestamp=NOW - timedelta(minutes=minutes)))


def test_p22_a_vm_that_stays_terminating_stalls_the_pool():
    machines = (stuck(11), *vms(NEW, 1, 2))
    assert stall_of(machines) == "web-0: Terminating, held by finalizers: backup.example/hold"
    assert stall_of((stuck(9), *vms(NEW, 1, 2))) == ""


def refuses_patch_of(name: str):
    def refuses(request: Request) -> bool:
        return request.verb == "patch" and request.key.name == name and not request.subresource

    return refuses


def test_p22_a_vm_whose_patch_is_refused_delays_no_other_vm_of_a_deleted_pool():
    simulation = PoolSimulation(pool(replicas=5, scaleInStrategy=OFFLINE, spec=vm_spec(disks=("data",))))
    simulation.come_to_rest()
    simulation.refuses = lambda request: request.resource is VMS and refuses_patch_of("web-1")(request)
    simulation.delete_pool()
    simulation.run_passes(20)
    assert set(simulation.vms) == {"web-1"}
    assert set(simulation.claims) == {f"data-{ordinal}" for ordinal in range(5)}


@pytest.mark.parametrize(("finalizers", "members"), [((), 0), (None, 3)], ids=["finalizer", "note"])
def test_p22_a_refused_patch_of_the_pool_stops_only_what_needs_the_patch(finalizers, members):
    """A new pool needs its finalizer for its VMs. A note stops nothing else, and its refusal is told."""
    more = {} if finalizers is None else {"finalizers": finalizers}
    simulation = PoolSimulation(pool(replicas=3, annotations={"vmherd.dev/partition": "2"}, **more))
    simulation.refuses = refuses_patch_of("web")
    simulation.run_passes(5)
    assert len(simulation.members()) == members
    failures = [each for each in simulation.pool["status"].get("conditions", []) if each["type"] == "ReplicaFailure"]
    assert [each["reason"] for each in failures] == ["FailedPoolUpdate"]


def test_p22_a_create_that_waits_for_a_disk_has_a_reason_and_a_deadline():
    simulation = PoolSimulation(pool(replicas=3, finalizers=(), spec=vm_spec(disks=("data",))))
    simulation.come_to_rest()
    protection = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
    simulation.server.change(PVCS, simulation.key("data-1"), protection)
    simulation.delete_by_user("web-1")
    simulation.run_passes(8)
    [failure] = [each for each in simulation.pool["status"]["conditions"] if each["type"] == "ReplicaFailure"]
    assert failure["message"] == "error during scale out: default/web-1 waits: the disk data-1 is being deleted"
    simulation.run_passes(130)
    assert "Stalled" in {each["type"] for each in simulation.pool["status"]["conditions"]}
    simulation.server.finalize(PVCS, simulation.key("data-1"))
    simulation.come_to_rest()
    assert [each["type"] for each in simulation.pool["status"]["conditions"]] == ["Available", "Progressing"]


def scene(what):
    """A pool, its VMs with their VMIs, and its revisions."""
    if what == "paused":
        return pool(replicas=1, paused=True), [], []
    if what == "selector":
        return pool(replicas=0, spec=vm_spec(labels={})), [], []
    if what == "held":
        owner = pool(replicas=1)
        return owner, [(each, {}) for each in vms(owner, 0, 1, annotations={PROTECT: "true"})], []
    if what in ("starting", "terminating"):
        owner = pool(replicas=1)
        changes = STARTING if what == "starting" else {"deleting": True, "finalizers": ("example.com/hold",)}
        running = {"ready": False, "phase": "Scheduling", "ready_for_s": 60, "age_s": 60}
        return owner, [(vm("web-0", owner=owner, **changes), running if what == "starting" else {})], []
    strategies = {"opportunistic": {"opportunistic": {}}, "unmanaged": {"unmanaged": {}}}
    fields = {"annotations": {PARTITION: "1"}} if what == "partition" else {"updateStrategy": strategies[what]}
    owner, kept = changed_pool(replicas=1, **fields)
    template = "web-2" if what == "opportunistic" else "web-1"
    return owner, [(vm("web-0", owner=owner, revision=template), {"revision": "web-1"})], kept


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("2 surplus virtual machines may not be deleted: they have not finished", True),
        ("1 surplus virtual machine may not be deleted: it is protected", False),
    ],
)
def test_p17_a_wait_keeps_its_age_while_only_numbers_change(text, is_same):
    earlier = time_text(seconds_ago(90))
    said = f"1 surplus virtual machine may not be deleted: they have not finished, since {earlier}"
    assert dated(text, said, NOW) == f"{text}, since {earlier if is_same else time_text(NOW)}"


WAITS = {
    "paused": "paused since {}",
    "partition": "update: 1 outdated VM stays outdated, because vmherd.dev/partition leaves it out, since {}",
    "opportunistic": "1 VM is outdated until a user restarts it: spec.updateStrategy is opportunistic, since {}",
    "unmanaged": "1 VM is outdated, and spec.updateStrategy unmanaged leaves it so, since {}",
    "held": "1 surplus virtual machine may not be deleted, since {}",
    "starting": "web-0: Starting, GuestNotRunning",
    "terminating": "web-0: Terminating, held by finalizers: example.com/hold",
    "selector": "an autoscaler of this pool finds no Pod: app=web of spec.selector does not match "
    "spec.virtualMachineTemplate.spec.template.metadata.labels, since {}",
}


@pytest.mark.parametrize(("what", "expected"), WAITS.items(), ids=WAITS)
def test_p17_the_problem_has_a_word_for_everything_and_its_age(what, expected):
    owner, found, kept = scene(what)
    machines, running = [each for each, _ in found], [vmi(each, **changes) for each, changes in found]
    for at in (NOW, NOW + timedelta(seconds=59)):
        seen_now = snapshot(owner, machines, vmis=running, revisions=kept, now=at)
        status = next_status(seen_now, (), plan(seen_now).waits)
        assert status.problem == expected.format(time_text(NOW))
        owner = replace(owner, status=status)
