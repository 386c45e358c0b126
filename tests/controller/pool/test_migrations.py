"""P13: a pool with the annotation `vmherd.dev/migrate` starts the live migrations that KubeVirt does not start."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import MIGRATE, REVISION_NAME
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.resources import MIGRATIONS
from controller.kubevirt.vmi_types import Migration, MigrationState, MigrationStatus, PhaseTransition
from controller.pool.failures import pool_failure
from controller.pool.members.snapshot import LiveUpdates, Snapshot
from controller.pool.plan import plan
from controller.pool.rollout.live import LiveChanges
from controller.pool.triggers import pools_of_migration
from controller.replicas.wrong_annotations import problem_of
from controller.runtime.actions import Create, Delete, Plan, Rejected
from informers.errors import StatusError
from informers.meta import ObjectMeta
from informers.store import Updated
from tests.builders import NOW, seconds_ago
from tests.controller.pool.test_live_changes import MIGRATES, NEW, OTHER_IMAGE, PLUGGED, Facts, changes, sized

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
MIGRATING = MigrationState()


def migration(name: str = "web-0-web-2", phase: str | None = None, *, ago_s: float = 0, **meta: Any) -> Migration:
    told = MigrationStatus(phase, (PhaseTransition(phase, seconds_ago(ago_s)),)) if phase else MigrationStatus()
    found = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", resource_version="7", **meta)
    return Migration(found, told)


def seen(facts: Facts, *found: Migration, starts: bool = True, read: bool = True) -> Snapshot:
    live = facts.seen().live
    assert live is not None
    return replace(facts.seen(), live=replace(live, starts=starts), migrations=found if read else None)


def started(todo: Plan) -> list[str]:
    """The names of the migrations that the plan creates or deletes."""
    found = [each for each in todo.actions if each.resource is MIGRATIONS]
    return [f"{'+' if isinstance(each, Create) else '-'}{each.key.name}" for each in found]


def waiting(*ordinals: int, **how: Any) -> Facts:
    """The VMs with these ordinals have the new spec, and wait for a migration."""
    facts = Facts(NEW, replicas=8, begun=max(ordinals, default=-1) + 1, **how)
    for each in ordinals:
        facts.hot_plug(each)
    return facts


def showing(facts: Facts, ordinal: int, **status: Any) -> Facts:
    """The status of the VMI with this ordinal has these fields."""
    old = facts.vmis[ordinal]
    assert old.status is not None
    facts.vmis[ordinal] = replace(old, status=replace(old.status, **status))
    return facts


def relabelled(facts: Facts, ordinal: int, revision: str = "web-2") -> Facts:
    old = facts.vmis[ordinal].metadata
    facts.vmis[ordinal] = replace(facts.vmis[ordinal], metadata=replace(old, labels={REVISION_NAME: revision}))
    return facts


def leaving(facts: Facts, ordinal: int) -> Facts:
    old = facts.vms[ordinal]
    facts.vms[ordinal] = replace(old, metadata=replace(old.metadata, deletion_timestamp=NOW))
    return facts


CASES: dict[str, tuple[Snapshot, list[str]]] = {
    "one VM waits": (seen(waiting(0)), ["+web-0-web-2"]),
    "two VMs wait": (seen(waiting(0, 1)), ["+web-1-web-2"]),
    "none waits": (seen(Facts(NEW, begun=1)), []),
    "another template, and nothing has begun": (seen(Facts(NEW)), []),
    "an open change": (seen(Facts(PLUGGED, replicas=8, begun=1).of_vmi(0, MIGRATES)), ["+web-0-web-2"]),
    "a VM that needs a restart": (seen(waiting(0).restart_required(0)), []),
    "a VM that its user migrates": (seen(showing(waiting(0), 0, migration_state=MIGRATING)), []),
    "a VM that cannot migrate": (seen(waiting(0).immovable()), []),
    "KubeVirt asks for it after the VMI has its label": (seen(relabelled(waiting(0), 0)), ["+web-0-web-2"]),
    "the same, and the VM cannot migrate": (seen(relabelled(waiting(0).immovable(), 0)), []),
    "the same, and the VMI does not run": (seen(relabelled(showing(waiting(0), 0, phase="Scheduling"), 0)), []),
    "the same, and the VM is being deleted": (seen(relabelled(leaving(waiting(0), 0), 0)), []),
    "the pool restarts no VM": (seen(waiting(0, updateStrategy={"opportunistic": {}})), ["+web-0-web-2"]),
    "the template is a third one": (seen(relabelled(Facts(OTHER_IMAGE).hot_plug(0), 0, "web-1")), []),
    "KubeVirt starts migrations": (seen(waiting(0), starts=False), []),
    "migrations are not read": (seen(waiting(0), read=False), []),
    "a new one": (seen(waiting(0, 1), migration()), []),
    "one that runs": (seen(showing(waiting(0, 1), 0, migration_state=MIGRATING), migration(phase=RUNNING)), []),
    "one that runs, and nothing else starts": (seen(waiting(0), migration("db-1", RUNNING)), []),
    "one that has succeeded": (seen(Facts(NEW, begun=1), migration(phase=SUCCEEDED)), ["-web-0-web-2"]),
    "the same, and the next VM": (seen(waiting(1), migration(phase=SUCCEEDED)), ["-web-0-web-2", "+web-1-web-2"]),
    "one that has succeeded, and KubeVirt says so later": (seen(waiting(0), migration(phase=SUCCEEDED)), []),
    "one that has failed": (seen(waiting(0), migration(phase=FAILED, ago_s=299)), []),
    "one that has failed, and the next VM": (seen(waiting(0, 1), migration("web-1-web-2", FAILED)), ["+web-0-web-2"]),
    "one that failed five minutes ago": (seen(waiting(0), migration(phase=FAILED, ago_s=300)), ["-web-0-web-2"]),
    "of an earlier revision": (seen(waiting(0), migration("web-0-web-1", SUCCEEDED)), ["-web-0-web-1", "+web-0-web-2"]),
    "one that is being deleted": (seen(Facts(NEW), migration(phase=FAILED, deletion_timestamp=NOW)), []),
    "KubeVirt starts them now": (seen(Facts(NEW, begun=1), migration(phase=SUCCEEDED), starts=False), ["-web-0-web-2"]),
}


@pytest.mark.parametrize(("found", "expected"), CASES.values(), ids=CASES)
def test_p13_a_pool_starts_one_live_migration_at_a_time_and_removes_those_that_have_ended(
    found: Snapshot, expected: list[str]
) -> None:
    assert started(plan(found)) == expected


def test_p13_the_pool_owns_its_migrations_and_deletes_only_what_it_has_seen() -> None:
    [create] = [each for each in plan(seen(waiting(0))).actions if isinstance(each, Create)]
    body = msgspec.json.decode(create.body)
    [owner] = body["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["kind"], owner["controller"]) == (create.owner_uid, "VirtualMachinePool", True)
    assert body["spec"] == {"vmiName": "web-0"}
    todo = plan(seen(Facts(NEW), migration(phase=SUCCEEDED)))
    [delete] = [each for each in todo.actions if isinstance(each, Delete)]
    assert (delete.uid, delete.version) == ("uid-web-0-web-2", "7")


def test_p13_a_failed_migration_wakes_the_pool_after_five_minutes() -> None:
    assert plan(seen(waiting(0), migration(phase=FAILED, ago_s=290))).requeue_after_s == 10
    nameless = replace(migration(phase=FAILED, creation_timestamp=seconds_ago(200)), status=MigrationStatus(FAILED))
    assert plan(seen(waiting(0), nameless)).requeue_after_s == 100, "without times of its phases, it counts as created"


def test_p13_no_migration_starts_while_the_pool_is_paused_or_makes_vms() -> None:
    assert started(plan(seen(waiting(0, paused=True)))) == []
    facts = waiting(0)
    facts.vms.pop()
    assert started(plan(seen(facts))) == []


KUBEVIRTS: dict[str, tuple[RolloutSettings, bool, bool]] = {
    "the default": (RolloutSettings(changes=True), True, True),
    "LiveMigrate": (RolloutSettings(changes=True, migrates=True), True, False),
    "Evict": (RolloutSettings(changes=True, evicts=True), False, False),
}


@pytest.mark.parametrize(("kubevirt", "migrates", "starts"), KUBEVIRTS.values(), ids=KUBEVIRTS)
def test_p13_with_the_annotation_changes_by_migration_are_live(
    kubevirt: RolloutSettings, migrates: bool, starts: bool
) -> None:
    facts, known = Facts(sized(guest="2Gi"), replicas=8, maxUnavailable=1), LiveChanges(lambda: kubevirt)
    key, members = facts.owner.metadata.key, facts.seen().members
    live = known.follow(key, members, NOW, migrates=True)
    assert live is not None
    assert (live.rollout.migrates, live.starts) == (migrates, starts)
    number = 2 if migrates else 1
    assert len(changes(plan(replace(facts.seen(), live=live)))) == number
    without = known.follow(key, members, NOW)
    assert without == LiveUpdates(live.since, kubevirt)


def test_p23_without_the_flag_the_annotation_has_no_effect_and_the_status_says_so() -> None:
    facts = Facts(NEW)
    meta = facts.owner.metadata
    owner = replace(facts.owner, metadata=replace(meta, annotations={MIGRATE: "true"}))
    found = replace(facts.seen(), owner=owner)
    problem = f"annotation {MIGRATE} has no effect: the controller runs without --migrations"
    assert problem_of(found.wrong_annotations) == problem
    allowed = replace(found, limits=replace(found.limits, migrations=True))
    assert allowed.wrong_annotations == ()


def test_p17_a_refused_migration_is_a_failure_of_the_update() -> None:
    found = seen(waiting(0))
    [create] = [each for each in plan(found).actions if isinstance(each, Create)]
    failure = pool_failure(found, (Rejected(create, StatusError("no", code=403)),), valid=True)
    assert failure is not None
    assert failure.reason == "FailedUpdate"


def test_p19_the_phase_of_a_migration_wakes_its_pool() -> None:
    owners = Facts(NEW).vms[0].metadata.owner_references

    def phase(text: str, at: datetime = NOW) -> Migration:
        return migration(phase=text, owner_references=owners, creation_timestamp=at)

    woken = list(pools_of_migration(Updated(phase(RUNNING), phase(SUCCEEDED))))
    assert [(key.name, delay_s) for key, delay_s in woken] == [("web", 0.0)]
    assert list(pools_of_migration(Updated(phase(RUNNING), phase(RUNNING, seconds_ago(1))))) == []
