"""The types VirtualMachine and ControllerRevision, with the fields that a pool reads.

A cache may contain tens of thousands of VMs. So the types have no other fields. Python's garbage collector does not
track their instances (`gc=False`, see `vmi_types`).
"""

from collections.abc import Mapping
from sys import intern
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from controller.apimachinery.conditions import Condition, with_shared_texts
from informers.meta import ObjectMeta, shared_map

READY: Final = "Ready"
FAILURE: Final = "Failure"
VOLUMES_CHANGE: Final = "VolumesChange"
MANUAL_RECOVERY_REQUIRED: Final = "ManualRecoveryRequired"
RESTART_REQUIRED: Final = "RestartRequired"
IN_SYNC: Final = "VMIInSync"
KEPT_CONDITIONS: Final = frozenset(
    {READY, FAILURE, VOLUMES_CHANGE, MANUAL_RECOVERY_REQUIRED, RESTART_REQUIRED, IN_SYNC}
)


class _Named(Struct, frozen=True, gc=False):
    name: str | None = None


class _Claim(Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str | None = None


class Volume(Struct, frozen=True, gc=False, rename="camel"):
    """A volume of a VM. Only the two sources that refer to a DataVolume or a PersistentVolumeClaim are decoded."""

    data_volume: _Named | None = None
    persistent_volume_claim: _Claim | None = None


class MachineTemplateMeta(Struct, frozen=True, gc=False):
    labels: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.labels:
            force_setattr(self, "labels", shared_map(self.labels))


class MachineTemplateSpec(Struct, frozen=True, gc=False, rename="camel"):
    """`volumes` has only the volumes with a DataVolume or a PersistentVolumeClaim."""

    node_selector: Mapping[str, str] | None = None
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] | None = None

    def __post_init__(self) -> None:
        if self.node_selector:
            force_setattr(self, "node_selector", shared_map(self.node_selector))
        if self.volumes:
            disks = [each for each in self.volumes if each.data_volume or each.persistent_volume_claim]
            force_setattr(self, "volumes", tuple(disks) or None)


class MachineTemplate(Struct, frozen=True, gc=False):
    metadata: MachineTemplateMeta | None = None
    spec: MachineTemplateSpec | None = None


class DataVolumeTemplate(Struct, frozen=True, gc=False):
    metadata: _Named | None = None


class VirtualMachineSpec(Struct, frozen=True, gc=False, rename="camel"):
    running: bool | None = None
    run_strategy: str | None = None
    template: MachineTemplate | None = None
    data_volume_templates: tuple[DataVolumeTemplate, ...] | None = None

    def __post_init__(self) -> None:
        if self.run_strategy is not None:
            force_setattr(self, "run_strategy", intern(self.run_strategy))


class StartFailure(Struct, frozen=True, gc=False, rename="camel"):
    consecutive_fail_count: int | None = None


class StateChangeRequest(Struct, frozen=True, gc=False):
    """A start or a stop that a user or a controller requested. A stop request contains the UID of the VMI."""

    action: str = ""
    uid: str | None = None


class VirtualMachineStatus(Struct, frozen=True, gc=False, rename="camel"):
    """`conditions` has only `KEPT_CONDITIONS`: the others' messages would take a quarter of the cache."""

    printable_status: str | None = None
    run_strategy: str | None = None
    start_failure: StartFailure | None = None
    conditions: tuple[Condition, ...] | None = None
    snapshot_in_progress: str | None = None
    restore_in_progress: str | None = None
    state_change_requests: tuple[StateChangeRequest, ...] | None = None
    desired_generation: int | None = None

    def __post_init__(self) -> None:
        if self.printable_status is not None:
            force_setattr(self, "printable_status", intern(self.printable_status))
        if self.run_strategy is not None:
            force_setattr(self, "run_strategy", intern(self.run_strategy))
        if self.conditions is not None:
            kept = tuple([with_shared_texts(each) for each in self.conditions if each.type in KEPT_CONDITIONS])
            force_setattr(self, "conditions", kept)


class VirtualMachine(Struct, frozen=True, gc=False):
    """`undecodable` is the decoder's error message if a field of the object cannot be decoded, or ""."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineSpec | None = None
    status: VirtualMachineStatus | None = None
    undecodable: str = msgspec.field(default="", name="(undecodable)")


class ControllerRevision(Struct, frozen=True, gc=False):
    """A stored version of the spec of a pool or VM. `data` is the JSON of the stored version."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: Raw = Raw()

    def __post_init__(self) -> None:
        # A Raw keeps the memory of the whole response in use. A copy needs only the bytes of this value.
        force_setattr(self, "data", self.data.copy())
