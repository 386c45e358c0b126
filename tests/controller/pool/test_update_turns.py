"""P13, P14, P21: ready VMs get a template in their turn, and KubeVirt changes running VMs where it can."""

import json
from copy import deepcopy
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true
from controller.kubevirt.annotations import MOST_DISRUPTIVE, REVISION_NAME
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.members.snapshot import Snapshot
from controller.pool.plan import plan
from controller.pool.rollout.live import LiveChanges
from controller.pool.status import next_status
from controller.runtime.actions import Action, Delete, Patch, Plan, Restart, ThreeWayMerge
from informers.meta import annotations_of
from tests.builders import NOW, seconds_ago
from tests.pool_builders import LABELS, POOLS, pool, revision, snapshot, vm_spec, vmi, vms
from tests.pool_scenes import deleted_vms, during_update, limited_pool, merged, new_vms, old_vms, restarted


def with_status(machine, **status):
    document = json.loads(msgspec.json.encode(machine))
    document["status"] = {**(document.get("status") or {}), **status}
    return (VMS if isinstance(machine, VirtualMachine) else VMIS).decode(msgspec.json.encode(document))


@pytest.mark.parametrize(("most", "names"), [(1, ["web-0"]), ("50%", ["web-0", "web-1"]), (9, None)])
def test_p14_only_as_many_ready_vms_get_the_template_as_may_be_unavailable(most, names):
    owner = limited_pool(most=most)
    todo = plan(during_update(owner, old_vms(owner, 0, 1, 2, 3)))
    assert merged(todo) == (names or [f"web-{n}" for n in range(4)])
    assert ("wait until more are ready" in todo.held) == (names is not None)


MIGRATING = {"migrationState": {"startTimestamp": "2026-08-01T11:59:00Z"}}
RESIZING = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "HotVCPUChange", "status": "True"}]}
REQUESTED = {"stateChangeRequests": [{"action": "Stop", "uid": "uid-web-0"}, {"action": "Start"}]}
BETWEEN = {"stateChangeRequests": [{"action": "Start"}]}
STOPPED = {"ready": False, "printable": "Stopped"}

USING_UP = {
    "a restart": ("Always", {"ready": False}, {}, {"ready": False}, {}),
    "a requested restart": ("Manual", {}, REQUESTED, {"revision": "web-1"}, {}),
    "between a stop and a requested start": ("Manual", STOPPED, BETWEEN, None, {}),
    "between a stop and a start": ("Once", STOPPED, {}, None, {}),
    "a migration": ("Always", {}, {}, {"revision": "web-1"}, MIGRATING),
}


@pytest.mark.parametrize(("strategy", "of_vm", "vm_status", "of_vmi", "vmi_status"), USING_UP.values(), ids=USING_UP)
def test_p14_a_vm_with_the_template_uses_up_the_limit_until_it_is_available(
    strategy, of_vm, vm_status, of_vmi, vmi_status
):
    owner = limited_pool(spec=vm_spec(image="v2", run_strategy=strategy))
    begun = with_status(new_vms(owner, 0, strategy=strategy, **of_vm)[0], **vm_status)
    waiting = old_vms(owner, 1, 2, 3, spec=vm_spec(image="v1", run_strategy=strategy))
    running = [] if of_vmi is None else [with_status(vmi(begun, **of_vmi), **vmi_status)]
    assert plan(during_update(owner, (begun, *waiting), vmis=[*running, *map(vmi, waiting)])).actions == ()


@pytest.mark.parametrize(
    ("strategy", "by"), [("Always", Delete), ("Once", Delete), ("Manual", Restart), ("RerunOnFailure", Restart)]
)
def test_p13_the_run_strategy_decides_how_a_vm_is_restarted(strategy, by):
    owner = limited_pool(replicas=1, spec=vm_spec(image="v2", run_strategy=strategy))
    machines = new_vms(owner, 0, strategy=strategy)
    [action] = plan(during_update(owner, machines, vmis=[vmi(machines[0], revision="web-1")])).actions
    assert type(action) is by
    if isinstance(action, Restart):
        assert (action.uid, action.instance_uid) == ("uid-web-0", "uid-web-0")
        assert action.requests.path("default", "web-0", action.subresource) == (
            "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web-0/restart"
        )


def test_p14_a_vm_that_crashes_keeps_its_template_while_the_new_template_does_not_come_up():
    owner = limited_pool()
    broken, crashed, fine = new_vms(owner, 0, ready=False), old_vms(owner, 1, ready=False), old_vms(owner, 2, 3)
    running = [vmi(broken[0], ready=False), vmi(crashed[0], ready=False), *(vmi(each) for each in fine)]
    todo = plan(during_update(owner, (*broken, *crashed, *fine), vmis=running))
    assert todo.actions == ()
    assert todo.held == "update: 3 virtual machines wait until more are ready"
    lost = plan(during_update(owner, (*broken, *crashed, *fine), vmis=[running[0], *running[2:]]))
    assert lost.actions == ()


def test_p13_a_ready_vm_that_needs_new_disks_is_deleted_in_its_turn_and_its_spec_is_not_changed():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = limited_pool(spec=vm_spec(image="v1", disks=["other"]))
    machines = old_vms(owner, 0, 1, 2, 3, spec=vm_spec(image="v1", disks=["data"]))
    todo = plan(during_update(owner, machines, before=before))
    assert deleted_vms(todo) == ["web-0"]
    assert merged(todo) == []
    assert all(each.foreground for each in todo.actions if isinstance(each, Delete))


@pytest.mark.parametrize("field", ["instancetype", "preference"])
def test_p13_a_new_instance_type_or_preference_needs_a_restart(field):
    spec = {**vm_spec(image="v1"), field: {"name": "u2"}}
    before = pool(spec={**vm_spec(image="v1"), field: {"name": "u1"}})
    owner = limited_pool(replicas=1, spec=spec)
    template = {**spec["template"], "metadata": {"labels": {**LABELS, REVISION_NAME: "web-2"}}}
    machines = vms(owner, 0, revision="web-2", spec={**spec, "template": template})
    assert restarted(
        plan(during_update(owner, machines, before=before, vmis=[vmi(machines[0], revision="web-1")]))
    ) == ["web-0"]


# Delicate moments


def test_p13_a_ready_vm_in_a_delicate_moment_waits_and_another_vm_takes_its_turn():
    owner = limited_pool()
    machines = old_vms(owner, 0, 1, 2, 3)
    running = [with_status(vmi(machines[0]), **MIGRATING), *(vmi(each) for each in machines[1:])]
    todo = plan(during_update(owner, machines, vmis=running))
    assert merged(todo) == ["web-1"]
    assert "web-0 waits: a live migration is in progress" in todo.held
    [notice] = todo.notices
    assert (notice.reason, notice.warning) == ("UpdateHeld", False)
    assert notice.message == "web-0 is not updated now: a live migration is in progress"
    assert notice.once == "uid-web-0 a live migration is in progress"


def test_p13_a_resize_that_the_new_spec_started_does_not_delay_the_restart():
    owner = limited_pool(replicas=2)
    begun, waiting = new_vms(owner, 0), old_vms(owner, 1)
    running = [with_status(vmi(begun[0], revision="web-1"), **RESIZING), with_status(vmi(waiting[0]), **RESIZING)]
    todo = plan(during_update(owner, (*begun, *waiting), vmis=running))
    assert restarted(todo) == ["web-0"]
    assert "web-1 waits: a hot-plug of CPUs is in progress" in todo.held


# Takeover


# Simulations


Json = dict[str, Any]


def sized(sockets: int = 1, **spec: Any) -> Json:
    """A VM spec with this number of sockets. `spec` are other fields of the VMI spec."""
    made = deepcopy(vm_spec())
    inner = made["template"]["spec"]
    inner["domain"] |= {"cpu": {"cores": 1, "sockets": sockets}, "memory": {"guest": spec.pop("guest", "1Gi")}}
    inner |= spec
    return made


OLD, NEW = sized(1), sized(2)
OTHER_LABEL = deepcopy(NEW)
OTHER_LABEL["template"]["metadata"]["labels"]["tier"] = "new"
OTHER_IMAGE = deepcopy(NEW)
OTHER_IMAGE["template"]["spec"]["volumes"][0]["containerDisk"]["image"] = "v2"


class Facts:
    """A pool `web` of VMs with the revision web-1, whose template is now `new`, and what KubeVirt says about the VMs.

    `begun` are the ordinals of the VMs that have the new spec. `states` are conditions of their VMs and VMIs.
    """

    def __init__(self, new: Json, *, replicas: int = 4, begun: int = 0, cap: str = "", **fields: Any) -> None:
        annotations = {MOST_DISRUPTIVE: cap} if cap else None
        self.owner = pool(replicas=replicas, generation=2, spec=new, annotations=annotations, **fields)
        former = pool(replicas=replicas, generation=1, spec=OLD)
        self.revisions = [revision(former, "web-1", number=1), revision(self.owner, "web-2", number=2)]
        self.vms = list(vms(self.owner, *range(replicas), revision="web-1", spec=OLD))
        self.vmis = [vmi(each) for each in self.vms]
        for ordinal in range(begun):
            [self.vms[ordinal]] = vms(self.owner, ordinal, revision="web-2", spec=new)
        self.since_s = 5.0

    def restart_required(self, ordinal: int, *, for_s: float = 60, seen_s: float = 5) -> "Facts":
        """KubeVirt's clock says `for_s`, and the controller has seen the condition for `seen_s`."""
        self.since_s = seen_s
        condition = {"type": "RestartRequired", "status": "True", "lastTransitionTime": seconds_ago(for_s)}
        old = self.vms[ordinal]
        name = (old.metadata.labels or {})[REVISION_NAME]
        [self.vms[ordinal]] = vms(self.owner, ordinal, revision=name, conditions=[condition])
        return self

    def unseen(self, ordinal: int) -> "Facts":
        old = self.vms[ordinal]
        self.vms[ordinal] = replace(old, metadata=replace(old.metadata, generation=7))
        return self

    def told(self, ordinal: int, type_: str, status: str, **fields: Any) -> "Facts":
        old = self.vms[ordinal]
        assert old.status is not None
        conditions = (*(old.status.conditions or ()), Condition(type=type_, status=status, **fields))
        meta, status = (
            replace(old.metadata, generation=2),
            replace(old.status, conditions=conditions, desired_generation=2),
        )
        self.vms[ordinal] = replace(old, metadata=meta, status=status)
        return self

    def hot_plug(self, ordinal: int, *, cannot_migrate: str = "") -> "Facts":
        conditions = [Condition(type="HotVCPUChange", status="True")]
        if cannot_migrate:
            conditions.append(Condition(type="LiveMigratable", status="False", message=cannot_migrate))
        old = self.vmis[ordinal]
        assert old.status is not None
        status = replace(old.status, conditions=(*(old.status.conditions or ()), *conditions))
        self.vmis[ordinal] = replace(old, status=status)
        return self

    def seen(self, *, live: bool = True, since_s: float | None = None) -> Snapshot:
        found = snapshot(self.owner, self.vms, vmis=self.vmis, revisions=self.revisions)
        start = seconds_ago(self.since_s if since_s is None else since_s)
        since = {each.metadata.uid: start for each in self.vms}
        return replace(found, live=since if live else None)

    def todo(self, **how: Any) -> Plan:
        return plan(self.seen(**how))


def changes(todo: Plan) -> list[str]:
    """What the plan does to VMs and VMIs, without the order of the VMs."""
    kinds = {ThreeWayMerge: "update", Delete: "restart", Patch: "relabel"}

    def text(action: Action) -> str:
        return f"{kinds[type(action)]} {action.key.name}"

    return sorted(text(each) for each in todo.actions if type(each) in kinds and each.resource is not POOLS)


LIVE_CHANGES = {
    "sockets": NEW,
    "memory": sized(guest="2Gi"),
    "a node selector": sized(nodeSelector={"zone": "b"}),
    "tolerations": sized(tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "affinity": sized(affinity={"nodeAffinity": {}}),
}


@pytest.mark.parametrize("new", LIVE_CHANGES.values(), ids=LIVE_CHANGES)
def test_p13_a_quarter_of_the_vms_gets_a_live_change_at_a_time_although_one_may_be_unavailable(new: Json) -> None:
    facts = Facts(new, replicas=8, maxUnavailable=1)
    assert len(changes(facts.todo())) == 2
    assert len(changes(facts.todo(live=False))) == 1, "as without live changes"


VERDICTS: dict[str, tuple[Facts, list[str]]] = {
    "not seen by KubeVirt": (Facts(NEW, begun=1).unseen(0), []),
    "not in sync": (Facts(NEW, begun=1).told(0, "VMIInSync", "False", observed_generation=2), []),
    "in sync with an older spec": (Facts(NEW, begun=1).told(0, "VMIInSync", "True", observed_generation=1), []),
    "in sync": (Facts(NEW, begun=1).told(0, "VMIInSync", "True", observed_generation=2), ["relabel web-0"]),
    "needs a restart, but is not in sync": (
        Facts(NEW, begun=1).restart_required(0).told(0, "VMIInSync", "False", observed_generation=2),
        [],
    ),
    "a hot-plug": (Facts(NEW, begun=1).hot_plug(0), []),
    "has ended": (Facts(NEW, begun=1), ["relabel web-0"]),
    "needs a restart": (Facts(NEW, begun=1).restart_required(0), ["restart web-0"]),
    "needs a restart since a moment": (Facts(NEW, begun=1).restart_required(0, for_s=1, seen_s=1), []),
    "needs a restart, and KubeVirt's clock is ahead": (
        Facts(NEW, begun=1).restart_required(0, for_s=-900),
        ["restart web-0"],
    ),
    "needs a restart, says KubeVirt again and again": (
        Facts(NEW, begun=1).restart_required(0, for_s=0),
        ["restart web-0"],
    ),
}


@pytest.mark.parametrize(("facts", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_p13_what_follows_from_kubevirts_verdict(facts: Facts, expected: list[str]) -> None:
    """While one of four VMs changes, no other live change begins."""
    assert changes(facts.todo()) == expected


@pytest.mark.parametrize("live", [True, False])
def test_p13_only_the_restart_after_a_live_change_depends_on_the_condition(live: bool) -> None:
    """Without live changes of KubeVirt, the VM is restarted at once."""
    facts = Facts(NEW, begun=1)
    todo = facts.restart_required(0).todo() if live else facts.hot_plug(0).todo(live=False)
    [restart] = [each for each in todo.actions if isinstance(each, Delete)]
    assert restart.key.name == "web-0"
    assert restart.member is not None
    assert restart.member.must_ask is live


def test_p13_the_label_after_a_live_change_is_checked_on_the_server_and_names_the_spec_of_the_vm() -> None:
    """The template returns to web-1 while the VMI still has the label web-1: first the VMI gets the label web-2."""
    facts = Facts(NEW, begun=1)
    back = pool(replicas=4, generation=3, spec=OLD)
    facts.owner, former = back, facts.revisions
    facts.vms = [replace(each, metadata=replace(each.metadata, owner_references=None)) for each in facts.vms]
    facts.vms = [*vms(back, 0, revision="web-2", spec=NEW), *vms(back, 1, 2, 3, revision="web-1", spec=OLD)]
    facts.revisions = former
    [patch] = [each for each in facts.todo().actions if isinstance(each, Patch) and each.resource in (VMS, VMIS)]
    assert patch.judged
    assert b"web-2" in patch.body


@pytest.mark.parametrize(
    ("facts", "said", "todo"),
    [
        (Facts(NEW, begun=1).hot_plug(0, cannot_migrate="bridge network"), ("web-0: ", "bridge network"), []),
        # KubeVirt has seen the spec and changes nothing, but it may still apply the spec.
        (Facts(NEW, begun=1), ("KubeVirt has not applied its new spec yet",), ["relabel web-0"]),
        (Facts(NEW, begun=1).told(0, "Failure", "True", message="a quota"), ("spec yet: a quota",), ["relabel web-0"]),
        (Facts(NEW, begun=1).told(0, "VMIInSync", "False", message="a bug"), ("spec yet: a bug",), []),
    ],
    ids=["it does not end", "KubeVirt ignores it", "KubeVirt fails", "KubeVirt is not in sync"],
)
def test_p13_a_live_change_without_an_end_stalls_the_pool_and_restarts_nothing(facts, said, todo) -> None:
    early, late = facts.seen(since_s=590), facts.seen(since_s=601)
    assert find_true(next_status(early, ()).conditions, "Stalled") is None
    assert 0 < (plan(early).requeue_after_s or 0) <= 10
    stalled = find_true(next_status(late, ()).conditions, "Stalled")
    assert stalled is not None
    assert (stalled.message or "").startswith("web-0: ")
    assert all(each in (stalled.message or "") for each in said)
    assert changes(plan(late)) == todo
    assert [each.reason for each in plan(late).notices] == ["RolloutStalled"]


CAPPED: dict[str, tuple[Facts, list[str]]] = {
    "a live change": (Facts(NEW, cap="live"), ["update"]),
    "an image": (Facts(OTHER_IMAGE, cap="live"), []),
    "KubeVirt asks for a restart": (Facts(NEW, cap="live", begun=1).restart_required(0), []),
    "an image, and the cap has a wrong value": (Facts(OTHER_IMAGE, cap="Live"), []),
    "an image, and restarts are allowed": (Facts(OTHER_IMAGE, cap="restart"), ["update"] * 4),
}


@pytest.mark.parametrize(("facts", "expected"), CAPPED.values(), ids=CAPPED)
def test_p21_the_cap_live_restarts_no_vm(facts: Facts, expected: list[str]) -> None:
    todo = facts.todo()
    assert [each.split()[0] for each in changes(todo)] == expected
    if not expected:
        status = next_status(facts.seen(), (), plan(facts.seen()).waits)
        stalled = find_true(status.conditions, "Stalled")
        assert stalled is not None
        assert stalled.reason == "UpdateHeld"
        cap = annotations_of(facts.owner.metadata)[MOST_DISRUPTIVE]
        assert f"{MOST_DISRUPTIVE}={cap} forbids it" in (status.problem or "")
        assert "UpdateHeld" in [each.reason for each in todo.notices]
        assert status.updated_replicas == 0, "the VMs stay outdated"


def test_p13_the_start_of_a_live_change_is_remembered_until_it_ends() -> None:
    facts, live = Facts(NEW, begun=1).hot_plug(0), [True]
    known = LiveChanges(lambda: live[0])
    members = facts.seen().members
    key = facts.owner.metadata.key
    assert known.follow(key, members, NOW) == {"uid-web-0": NOW}
    assert known.follow(key, members, NOW + timedelta(seconds=9)) == {"uid-web-0": NOW}
    asked, later = Facts(NEW, begun=1).restart_required(0).seen().members, NOW + timedelta(seconds=20)
    assert known.follow(key, asked, later) == {"uid-web-0": later}, "a restart has a time of its own"
    assert known.follow(key, asked, later + timedelta(seconds=2)) == {"uid-web-0": later}
    assert known.follow(key, Facts(OLD).seen().members, NOW) == {}
    live[0] = False
    assert known.follow(key, members, NOW) is None
