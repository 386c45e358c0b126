"""P13, P21: KubeVirt changes running VMs where it can, and its verdict decides about a restart."""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true
from controller.kubevirt.annotations import DRAIN_SECONDS, DRAINING, MOST_DISRUPTIVE, REVISION_NAME, SCOUTED
from controller.kubevirt.live_updates import NO_METHOD, RolloutSettings
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.members.snapshot import LiveUpdates, Snapshot
from controller.pool.plan import plan
from controller.pool.rollout.live import LiveChanges
from controller.pool.status import next_status
from controller.replicas.draining import UPDATE, Mark
from controller.runtime.actions import Delete, Patch, Plan, ThreeWayMerge
from controller.runtime.members.groups import one_by_one
from informers.meta import annotations_of
from tests.builders import NOW, seconds_ago
from tests.plans import reasons
from tests.pool_builders import POOLS, intent_of, pool, revision, snapshot, vm_spec, vmi, vms

Json = dict[str, Any]


def sized(sockets: int = 1, **spec: Any) -> Json:
    """A VM spec with this number of sockets. `spec` are other fields of the VMI spec."""
    made = deepcopy(vm_spec())
    inner = made["template"]["spec"]
    inner["domain"] |= {"cpu": {"cores": 1, "sockets": sockets}, "memory": {"guest": spec.pop("guest", "1Gi")}}
    inner |= spec
    return made


OLD, NEW = sized(1), sized(2)
PLUGGED = deepcopy(OLD)
PLUGGED["template"]["spec"]["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "more"}})
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

    def draining(self, ordinal: int) -> "Facts":
        """An update of the VM has begun to drain it."""
        old, mark = self.vms[ordinal].metadata, str(Mark(UPDATE, seconds_ago(-20), f"uid-web-{ordinal}"))
        self.vms[ordinal] = replace(self.vms[ordinal], metadata=replace(old, annotations={DRAINING: mark}))
        notes = {**annotations_of(self.owner.metadata), DRAIN_SECONDS: "20"}
        self.owner = replace(self.owner, metadata=replace(self.owner.metadata, annotations=notes))
        return self

    def told(self, ordinal: int, type_: str, status: str, **fields: Any) -> "Facts":
        old = self.vms[ordinal]
        assert old.status is not None
        conditions = (*(old.status.conditions or ()), Condition(type=type_, status=status, **fields))
        meta = replace(old.metadata, generation=2)
        known = replace(old.status, conditions=conditions, desired_generation=2)
        self.vms[ordinal] = replace(old, metadata=meta, status=known)
        return self

    def hot_plug(self, ordinal: int) -> "Facts":
        return self.of_vmi(ordinal, Condition(type="HotVCPUChange", status="True"))

    def immovable(self) -> "Facts":
        for ordinal in range(len(self.vmis)):
            self.of_vmi(ordinal, Condition(type="LiveMigratable", status="False", message="bridge network"))
        return self

    def of_vmi(self, ordinal: int, condition: Condition) -> "Facts":
        old = self.vmis[ordinal]
        assert old.status is not None
        self.vmis[ordinal] = replace(
            old, status=replace(old.status, conditions=(*(old.status.conditions or ()), condition))
        )
        return self

    def seen(self, *, live: bool = True, since_s: float | None = None, **settings: bool) -> Snapshot:
        found = snapshot(self.owner, self.vms, vmis=self.vmis, revisions=self.revisions)
        start = seconds_ago(self.since_s if since_s is None else since_s)
        since = {each.metadata.uid: start for each in self.vms}
        rollout = RolloutSettings(**{"changes": True, "migrates": True, "judges": True, **settings})
        return replace(found, live=LiveUpdates(since, rollout) if live else None)

    def scouted(self, template: Json) -> "Facts":
        digest = intent_of(pool(spec=template)).template.digest
        notes = {**annotations_of(self.owner.metadata), SCOUTED: f"{digest} web-0"}
        self.owner = replace(self.owner, metadata=replace(self.owner.metadata, annotations=notes))
        return self

    def todo(self, **how: Any) -> Plan:
        return plan(self.seen(**how))


def changes(todo: Plan) -> list[str]:
    """What the plan does to VMs and VMIs, without the order of the VMs."""
    kinds = {ThreeWayMerge: "update", Delete: "restart", Patch: "relabel"}
    of_members = [each for each in todo.actions if type(each) in kinds and each.resource is not POOLS]
    return sorted(f"{kinds[type(each)]} {each.key.name}" for each in of_members)


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
    "a restart, says a clock that is ahead": (Facts(NEW, begun=1).restart_required(0, for_s=-900), ["restart web-0"]),
    "a restart, says KubeVirt again and again": (Facts(NEW, begun=1).restart_required(0, for_s=0), ["restart web-0"]),
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
        (Facts(NEW, begun=1).hot_plug(0), ("web-0: ", "hot-plug of CPUs"), []),
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
    assert reasons(plan(late)) == ["RolloutStalled"]
    restarted = replace(facts.seen(since_s=0), owner=replace(facts.owner, status=next_status(late, ())))
    assert find_true(next_status(restarted, ()).conditions, "Stalled") == stalled, "the status tells a new process"


NO_END: dict[str, tuple[Callable[..., Facts], bool, str]] = {
    "no method": (Facts, False, NO_METHOD),
    "the VMs cannot migrate": (lambda *a, **how: Facts(*a, **how).immovable(), True, "it cannot migrate: bridge net"),
}


@pytest.mark.parametrize("new", [NEW, sized(guest="2Gi")], ids=["sockets", "memory"])
@pytest.mark.parametrize(("facts", "migrates", "why"), NO_END.values(), ids=NO_END)
def test_p13_a_change_whose_migration_nothing_starts_is_a_restart_in_its_turn(facts, migrates, why, new) -> None:
    begins = facts(new, maxUnavailable=1).todo(migrates=migrates)
    assert len(changes(begins)) == 1
    [update] = [each for each in begins.actions if isinstance(each, ThreeWayMerge)]
    assert f"restart, because {why}" in update.why
    one = {"begun": 1, "maxUnavailable": 1}
    for begun in (facts(new, **one).hot_plug(0), facts(new, **one).unseen(0)):
        late = begun.seen(migrates=migrates, since_s=601)
        assert changes(plan(late)) == ["restart web-0"]
        assert find_true(next_status(late, ()).conditions, "Stalled") is None
    capped = facts(new, cap="live")
    assert changes(capped.todo(migrates=migrates)) == []
    assert f"needs a restart, because {why}" in capped.todo(migrates=migrates).held
    # KubeVirt gives the VMI its new spec a moment before it asks for the migration.
    asks_later = facts(new, **one).draining(0).seen(migrates=migrates, since_s=2)
    assert (changes(plan(asks_later)), plan(asks_later).requeue_after_s) == ([], 1)
    assert "relabel web-0" in changes(facts(new, **one).todo(migrates=migrates)), "an administrator has migrated it"


@pytest.mark.parametrize("change", ["a node selector", "tolerations", "affinity"])
def test_p13_a_change_that_needs_no_migration_is_live_without_migrations(change: str) -> None:
    facts = Facts(LIVE_CHANGES[change], replicas=8, maxUnavailable=1).immovable()
    assert len(changes(facts.todo(migrates=False))) == 2


def plugged(begun: int = 1, **how: Any) -> Facts:
    """KubeVirt's verdict tells if the VMs need a restart for this volume."""
    return Facts(PLUGGED, replicas=8, maxUnavailable=1, begun=begun, **how)


@pytest.mark.parametrize("changes_vms", [True, False], ids=["LiveUpdate", "Stage"])
def test_p13_a_change_whose_verdict_only_kubevirt_knows_takes_the_turn_of_a_restart(changes_vms: bool) -> None:
    todo = plugged(begun=0).todo(changes=changes_vms)
    assert len(changes(todo)) == 1
    [update] = [each for each in todo.actions if isinstance(each, ThreeWayMerge)]
    assert "restart, because only KubeVirt knows" in update.why
    assert changes(plugged().todo(judges=False)) == ["restart web-0"], "KubeVirt before 1.9 gives no verdict"
    assert changes(Facts(OTHER_IMAGE, begun=1, maxUnavailable=1).todo()) == ["restart web-0"], "a restart is certain"


def capped(**how: Any) -> Facts:
    """All VMs may be unavailable. KubeVirt's verdict tells if they need a restart for this volume."""
    return Facts(PLUGGED, cap="live", **how)


WAITS = {"migrates": False}
MIGRATES = Condition(type="MigrationRequired", status="True")
OPEN_VERDICTS: dict[str, tuple[Facts, dict[str, Any], list[str]]] = {
    "none": (plugged().unseen(0), {}, []),
    "the VMI has it since a moment": (plugged(), {"since_s": 2}, []),
    "the VMI has it": (plugged(), {}, ["relabel web-0", "update"]),
    "a migration": (plugged().of_vmi(0, MIGRATES), {}, ["update"]),
    "a migration that waits": (plugged().of_vmi(0, replace(MIGRATES, status="False")), WAITS, ["update"]),
    "a migration that nothing starts": (plugged().of_vmi(0, MIGRATES), WAITS, ["restart web-0"]),
    "a migration of a VM that cannot migrate": (plugged().of_vmi(0, MIGRATES).immovable(), {}, ["restart web-0"]),
    "a restart since a moment": (plugged().restart_required(0, for_s=1, seen_s=1), {}, []),
    "a restart": (plugged().restart_required(0), {}, ["restart web-0"]),
    "a restart under the cap": (plugged(cap="live").restart_required(0), {}, ["update web-0"]),
    "scout: the first": (capped(), {}, ["update"]),
    "scout: no verdict": (capped(begun=1).unseen(0), {}, []),
    "scout: a migration that nothing starts": (capped(begun=1).of_vmi(0, MIGRATES), WAITS, []),
    "scout: it is live": (capped(begun=1), {}, ["relabel web-0"]),
    "scout: a restart": (capped(begun=1).restart_required(0), {}, ["update web-0"]),
    "scout: a restart, noted earlier": (capped(begun=1).restart_required(0).scouted(PLUGGED), {}, ["update web-0"]),
    "scout: noted": (capped().scouted(PLUGGED), {}, []),
    "scout: noted for another template": (capped().scouted(NEW), {}, ["update"]),
    "scout: another VM needed a restart before": (capped().restart_required(2), {}, ["update"]),
}


@pytest.mark.parametrize(("facts", "how", "expected"), OPEN_VERDICTS.values(), ids=OPEN_VERDICTS)
def test_p13_p21_an_open_change_ends_with_kubevirts_verdict_and_a_capped_vm_gets_its_spec_back_for_a_restart(
    facts: Facts, how: dict[str, Any], expected: list[str]
) -> None:
    """The pool waits for the verdict about web-0. With the cap, web-0 is a scout: the others wait for its end."""
    todo = facts.todo(**how)
    assert [each if "web-0" in each else each.split()[0] for each in changes(todo)] == expected
    assert how.get("since_s") is None or todo.requeue_after_s == 1
    is_capped = MOST_DISRUPTIVE in annotations_of(facts.owner.metadata)
    assert all(each.is_exact is is_capped for each in todo.actions if isinstance(each, ThreeWayMerge))


CAPPED: dict[str, tuple[Facts, list[str]]] = {
    "a live change": (Facts(NEW, cap="live"), ["update"]),
    "a volume": (plugged(begun=0, cap="live"), ["update"]),
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
        assert "UpdateHeld" in reasons(todo)
        assert status.updated_replicas == 0, "the VMs stay outdated"


def test_p21_the_verdict_is_noted_before_the_scout_gets_its_spec_back_and_holds_all_vms() -> None:
    note, back = capped(begun=1).restart_required(0).todo().actions
    assert isinstance(note, Patch)
    assert isinstance(back, ThreeWayMerge)
    digest = intent_of(pool(spec=PLUGGED)).template.digest
    assert f'"{SCOUTED}":"{digest} web-0"'.encode() in note.body
    assert (b"web-1" in back.new, b'"more"' in back.old, b'"more"' in back.new) == (True, True, False)
    held = capped().scouted(PLUGGED).seen()
    assert "KubeVirt asked for it when web-0 had the change" in (next_status(held, (), plan(held).waits).problem or "")
    assert len(plan(held).notices) == len(held.members)
    assert changes(Facts(PLUGGED, cap="restart").scouted(PLUGGED).todo())


def test_p13_the_start_of_a_live_change_is_remembered_until_it_ends() -> None:
    facts, live = Facts(NEW, begun=1).hot_plug(0), [True]
    known = LiveChanges(lambda: RolloutSettings(changes=live[0]))
    members = facts.seen().members
    key = facts.owner.metadata.key

    def since(seen: Any, now: Any) -> Any:
        found = known.follow(key, seen, now)
        return found and found.since

    assert since(members, NOW) == {"uid-web-0": NOW}
    assert since(members, NOW + timedelta(seconds=9)) == {"uid-web-0": NOW}
    asked, later = Facts(NEW, begun=1).restart_required(0).seen().members, NOW + timedelta(seconds=20)
    assert since(asked, later) == {"uid-web-0": later}, "a restart has a time of its own"
    assert since(asked, later + timedelta(seconds=2)) == {"uid-web-0": later}
    next_template = {REVISION_NAME: "web-9"}
    vms_of = [replace(each.vm, metadata=replace(each.metadata, labels=next_template)) for each in asked]
    restarted = one_by_one(replace(each, vm=vm) for each, vm in zip(asked, vms_of, strict=True))
    assert since(restarted, later + timedelta(seconds=9))["uid-web-0"] == later + timedelta(seconds=9)
    assert since(Facts(OLD).seen().members, NOW) == {}
    live[0] = False
    assert known.follow(key, members, NOW) is None
