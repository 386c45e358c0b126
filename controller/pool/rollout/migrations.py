"""Live migrations that a pool starts itself (P13).

KubeVirt ends some live changes with a live migration, and starts none without `LiveMigrate` in its
`workloadUpdateMethods`. A pool with the annotation `MIGRATE` then starts them, one at a time. The name of a migration
tells its VM and the VM's revision, so no VM gets two for one change. The pool owns its migrations, so after a restart
the controller finds them again.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.names import NAME_LENGTH, cut_apart
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt import vmis
from controller.kubevirt.live_updates import Change, needs_migration, why_not
from controller.kubevirt.resources import MIGRATIONS
from controller.kubevirt.vmi_types import Migration
from controller.kubevirt.vms import is_deleting, revision_of
from controller.pool.members.machine import Machine
from controller.pool.members.select import in_order
from controller.pool.members.situation import Situation
from controller.pool.rollout.live import may_be_live
from controller.pool.rollout.steps import pending_step
from controller.replicas.notes import wake_at
from controller.runtime.actions import Action, Cause, Create, Delete, Plan, join, stage_of
from informers.meta import ObjectKey

KEPT: Final = timedelta(minutes=5)
"""The time after which a migration that has not ended its change is deleted, so that the VM gets the next one."""


def plan_migrations(situation: Situation, *, may_start: bool) -> Plan:
    """Plan the migration of the first VM that waits for one, if none of the pool runs and `may_start` is true. Plan the
    deletion of migrations that have ended, as soon as their VM needs no migration any more, or after the time `KEPT`.
    """
    found, now = situation.snapshot.migrations, situation.now
    waiting = [*situation.members.where(_waits).without(situation.doomed)] if found is not None else []
    if found is None or not (found or waiting):
        return Plan()
    needed = {migration_name(each) for each in waiting}
    writes: list[Action] = []
    kept_until = []
    for each in filter(_has_ended, found):
        until = _ended_at(each, now) + KEPT
        if each.metadata.name in needed and until > now:
            kept_until.append(until)
        elif each.metadata.deletion_timestamp is None:
            writes.append(_delete(each))
    if may_start and all(map(_has_ended, found)):
        writes += _first(situation, waiting, {each.metadata.name for each in found})
    return join((Plan(stages=stage_of(writes)), wake_at(kept_until, now)))


def migration_name(machine: Machine) -> str:
    return cut_apart(f"{machine.metadata.name}-{revision_of(machine.vm)}", NAME_LENGTH)


def _first(situation: Situation, waiting: list[Machine], names: set[str]) -> list[Action]:
    """Return the creation of the migration of the VM that comes first in the update, if its name is not one of `names`.

    KubeVirt may ask for a migration after the VMI has its new label. But a VM that an update restarts needs none.
    """
    snapshot, live = situation.snapshot, situation.snapshot.live
    if live is None or not live.starts:
        return []
    for each in in_order(snapshot, situation.intent.update.selection, waiting):
        step, vmi = pending_step(situation, each), each.vmi
        may_migrate = vmi and not vmis.is_migrating(vmi) and not why_not(Change.SIZE, live.rollout, vmi)
        if may_migrate and (step is None or step.is_unfinished) and migration_name(each) not in names:
            return [_create(situation, each)]
    return []


def _waits(machine: Machine) -> bool:
    vmi = machine.vmi
    return vmi is not None and may_be_live(machine) and needs_migration(vmi) and not is_deleting(machine.vm)


def _has_ended(migration: Migration) -> bool:
    return migration.status.phase in vmis.FINAL_PHASES


def _ended_at(migration: Migration, now: datetime) -> datetime:
    times = [each.phase_transition_timestamp for each in migration.status.phase_transition_timestamps or ()]
    return with_timezone(times[-1] if times else migration.metadata.creation_timestamp) or now


def _create(situation: Situation, machine: Machine) -> Create:
    pool, name = situation.pool, migration_name(machine)
    owners = [controller_reference(situation.snapshot.pools, pool)]
    body = {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {"name": name, "namespace": pool.namespace, "ownerReferences": owners},
        "spec": {"vmiName": machine.metadata.name},
    }
    return Create(
        resource=MIGRATIONS,
        key=ObjectKey(pool.namespace, name),
        body=msgspec.json.encode(body),
        owner_uid=pool.uid,
        why=f"the change of {machine.metadata.name} waits for a live migration",
    )


def _delete(migration: Migration) -> Delete:
    meta, why, cause = migration.metadata, f"it has ended: {migration.status.phase}", Cause.PRUNING
    return Delete(resource=MIGRATIONS, key=meta.key, uid=meta.uid, version=meta.resource_version, why=why, cause=cause)
