"""The types of VMIs, VMI templates and statuses, with the fields that the controller reads.

Decoded values have no reference cycles, so the garbage collector does not track them (`gc=False`): with 50,000 VMIs its
pauses would delay all other work. Templates stay raw bytes, so unknown fields are kept.
"""

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from controller.apimachinery.conditions import Condition, with_shared_texts
from informers.meta import ObjectMeta

READY: Final = "Ready"
SYNCHRONIZED: Final = "Synchronized"
POD_SCHEDULED: Final = "PodScheduled"
VOLUMES_CHANGE: Final = "VolumesChange"
CPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"
PAUSED: Final = "Paused"
LIVE_MIGRATABLE: Final = "LiveMigratable"
MIGRATION_REQUIRED: Final = "MigrationRequired"
KEPT_CONDITIONS: Final = frozenset(
    {READY, SYNCHRONIZED, POD_SCHEDULED, VOLUMES_CHANGE, CPU_CHANGE, MEMORY_CHANGE, MIGRATION_REQUIRED, PAUSED}
)


class MigrationState(Struct, frozen=True, gc=False, rename="camel"):
    completed: bool | None = None
    failed: bool | None = None
    end_timestamp: str | None = None


class VolumeStatus(Struct, frozen=True, gc=False):
    name: str = ""
    phase: str | None = None


class MigratedVolume(Struct, frozen=True, gc=False, rename="camel"):
    volume_name: str = ""


class BackupStatus(Struct, frozen=True, gc=False, rename="camel"):
    backup_name: str | None = None
    completed: bool | None = None
    failed: bool | None = None


class ChangedBlockTracking(Struct, frozen=True, gc=False, rename="camel"):
    backup_status: BackupStatus | None = None


class PhaseTransition(Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    phase_transition_timestamp: datetime | None = None


TIMED_PHASES: Final = {phase: phase for phase in ("Running", "Succeeded", "Failed")}
STABLE_VOLUME_PHASES: Final = frozenset({None, "", "Ready", "MemoryDumpCompleted", "MemoryDumpFailed"})
"""The phases of a volume that is neither being attached nor detached. Volumes of the launcher Pod have no phase."""


class VMIStatus(Struct, frozen=True, gc=False, rename="camel"):
    """To save memory, `conditions` has only `KEPT_CONDITIONS` and a false `LiveMigratable`, `volume_status` only what
    is attached or detached, and `phase_transition_timestamps` only `TIMED_PHASES`.
    """

    phase: str | None = None
    reason: str | None = None
    node_name: str | None = None
    evacuation_node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None
    migration_state: MigrationState | None = None
    volume_status: tuple[VolumeStatus, ...] | None = None
    migrated_volumes: tuple[MigratedVolume, ...] | None = None
    changed_block_tracking: ChangedBlockTracking | None = None
    fs_freeze_status: str | None = None
    phase_transition_timestamps: tuple[PhaseTransition, ...] | None = None

    def __post_init__(self) -> None:
        if self.phase is not None:
            force_setattr(self, "phase", intern(self.phase))
        if self.node_name is not None:
            force_setattr(self, "node_name", intern(self.node_name))
        if self.conditions is not None:
            kept = [
                with_shared_texts(each)
                for each in self.conditions
                if each.type in KEPT_CONDITIONS or (each.type == LIVE_MIGRATABLE and each.status == "False")
            ]
            force_setattr(self, "conditions", tuple(kept))
        if self.volume_status is not None:
            moving = [each for each in self.volume_status if each.phase not in STABLE_VOLUME_PHASES]
            force_setattr(self, "volume_status", tuple(moving) or None)
        if self.phase_transition_timestamps:
            # All VMIs share the names of the phases.
            timed = [
                PhaseTransition(TIMED_PHASES[each.phase], each.phase_transition_timestamp)
                for each in self.phase_transition_timestamps
                if each.phase in TIMED_PHASES
            ]
            force_setattr(self, "phase_transition_timestamps", tuple(timed))


class VirtualMachineInstance(Struct, frozen=True, gc=False, rename="camel"):
    """`undecodable` is the decoder's error message if a field of the object cannot be decoded, or ""."""

    metadata: ObjectMeta = ObjectMeta()
    status: VMIStatus | None = None
    undecodable: str = msgspec.field(default="", name="(undecodable)")


class MigrationStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    phase_transition_timestamps: tuple[PhaseTransition, ...] | None = None


class Migration(Struct, frozen=True, gc=False):
    """A VirtualMachineInstanceMigration. The caches contain them only with the flag `--migrations` (P13)."""

    metadata: ObjectMeta = ObjectMeta()
    status: MigrationStatus = MigrationStatus()


class TemplateMeta(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    name: str | None = None
    generate_name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class ReplicaStatus(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """The status of a set or pool. All fields are optional, because another controller may have written the status."""

    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    label_selector: str | None = None
    current_revision: str | None = None
    update_revision: str | None = None
    printable_status: str | None = None
    problem: str | None = None
    conditions: tuple[Condition, ...] | None = None


class VMITemplate(Struct, frozen=True, gc=False):
    """A VMI template. `spec` is the user's JSON, unchanged. `spec` is empty if the template has no spec."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw()

    def __post_init__(self) -> None:
        # A Raw keeps the memory of the whole response in use. A copy needs only the bytes of this value.
        force_setattr(self, "spec", self.spec.copy())
