"""The catalogue of the annotations `vmherd.dev/...` (P23).

The controller, the admission policy of the chart and the reference page use the same entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from controller.kubevirt.annotations import (
    ADOPTED_TEMPLATE,
    DELETION_COST,
    EARLY_FAILURES,
    HEALED,
    INDEX_SYSPREP,
    MAX_UNHEALTHY,
    MIN_READY,
    MOST_DISRUPTIVE,
    PARTITION,
    PARTITION_REVISION,
    PROGRESS_DEADLINE,
    PROTECT,
    RECREATED,
    REMOVE,
    REPLACE_UNREADY_AFTER,
    ROLLING_UPDATE,
    TAKEOVER,
    UNREADY,
)


class Place(StrEnum):
    """The objects whose annotations the controller sees. The value is the plural for messages."""

    SET = "sets"
    POOL = "pools"
    VM = "VMs"
    VMI = "VMIs of sets"
    VMI_OF_VM = "VMIs of VMs"
    """The controller reads no annotation of these VMIs, because it reads those of their VMs."""


class Writer(StrEnum):
    USER = "user"
    CONTROLLER = "vmherd"
    BOTH = "user, vmherd"


class Value(Struct, frozen=True):
    """The valid values of an annotation.

    The whole value matches `pattern`. Python and RE2, the syntax of Kubernetes, read the pattern alike. If `low` is not
    None, the value is also a number from `low` to `HIGHEST`. `form` completes the sentence "the value must be ...".
    """

    form: str
    pattern: str
    low: int | None = None


class Annotation(Struct, frozen=True, kw_only=True):
    """An annotation that belongs on the objects of `on`.

    `otherwise` completes the sentence "the value is not valid, so ...". It is empty if every value is valid.
    """

    name: str
    on: tuple[Place, ...]
    value: Value
    meaning: str
    example: str = ""
    otherwise: str = ""
    writer: Writer = Writer.USER


LOWEST, HIGHEST = -(2**31), 2**31 - 1

_NUMBER: Final = "-?(0|[1-9][0-9]{0,9})"
_AMOUNT: Final = "([1-9][0-9]{0,8}|[1-9][0-9]?%|100%)"

FLAG: Final = Value('"true" or "false"', "true|false")
INTEGER: Final = Value("an integer", _NUMBER, low=LOWEST)
COUNT: Final = Value("0 or more", _NUMBER, low=0)
SECONDS: Final = Value("a number of seconds from 1", _NUMBER, low=1)
AMOUNT: Final = Value('a number from 1, or "1%" to "100%"', _AMOUNT)
MAX_UNAVAILABLE: Final = Value(
    "maxUnavailable=N with N at least 1, or maxUnavailable=P% with P from 1 to 100",
    rf"\s*maxUnavailable\s*=\s*{_AMOUNT}\s*",
)
DISRUPTION: Final = Value('"restart" or "recreate"', "restart|recreate")
PROCEED: Final = Value('"proceed"', "proceed|done|held.*")
OPAQUE: Final = Value("what vmherd writes", "(?s).*")

_MEMBERS: Final = (Place.VM, Place.VMI)
_OWNERS: Final = (Place.SET, Place.POOL)
_POOL: Final = (Place.POOL,)

CATALOGUE: Final = (
    Annotation(
        name=REMOVE,
        on=_MEMBERS,
        value=FLAG,
        example="true",
        meaning="the VM is deleted first; a scale-in waits while KubeVirt snapshots, restores, backs up or migrates "
        "the VM, or attaches a disk",
        otherwise="it is not marked",
    ),
    Annotation(
        name=PROTECT,
        on=_MEMBERS,
        value=FLAG,
        example="true",
        meaning="vmherd never deletes the VM; every value but `false` protects",
        otherwise="it is protected",
    ),
    Annotation(
        name=DELETION_COST,
        on=_MEMBERS,
        value=INTEGER,
        example="10",
        meaning="VMs with a lower cost are deleted first; the default is 0",
        otherwise="it counts as 0",
    ),
    Annotation(
        name=ROLLING_UPDATE,
        on=(Place.SET,),
        value=MAX_UNAVAILABLE,
        example="maxUnavailable=25%",
        meaning="replace VMIs of an older template; at most this share of the VMIs is unavailable at the same time",
        otherwise="outdated VMIs are not replaced",
    ),
    Annotation(
        name=MIN_READY,
        on=_POOL,
        value=COUNT,
        example="60",
        meaning="a restarted VM counts as available after it was ready for this time",
        otherwise="it counts as 0",
    ),
    Annotation(
        name=PARTITION,
        on=_POOL,
        value=COUNT,
        example="3",
        meaning="VMs with a smaller ordinal keep their revision, for a canary update",
        otherwise="nothing is rolled out",
    ),
    Annotation(
        name=MAX_UNHEALTHY,
        on=_POOL,
        value=AMOUNT,
        example="30%",
        meaning="if more VMs fail together, no VM is healed; the default is 50%",
        otherwise="it counts as 50%",
    ),
    Annotation(
        name=MOST_DISRUPTIVE,
        on=_POOL,
        value=DISRUPTION,
        example="recreate",
        meaning="the most that an update may do to a VM: restart it, or delete it with its disks and create it again",
        otherwise="it counts as restart",
    ),
    Annotation(
        name=INDEX_SYSPREP,
        on=_POOL,
        value=FLAG,
        example="true",
        meaning="with `appendIndexToConfigMapRefs` or `appendIndexToSecretRefs`: the references of `sysprep` volumes "
        "get the ordinal too; a change of the annotation updates the VMs like a new template, so vmherd copies it to "
        "the revisions",
        otherwise='it counts as "false"',
    ),
    Annotation(
        name=PROGRESS_DEADLINE,
        on=_OWNERS,
        value=SECONDS,
        example="600",
        meaning="time that an update may wait before the Event `RolloutStalled` and the condition `Stalled`",
        otherwise="it counts as 600",
    ),
    Annotation(
        name=REPLACE_UNREADY_AFTER,
        on=_OWNERS,
        value=SECONDS,
        example="900",
        meaning="replace a VM or VMI that runs and has not been ready for this time, in pools within the limits of "
        "healing; off by default",
        otherwise="no VM is replaced because it is not ready",
    ),
    Annotation(
        name=TAKEOVER,
        on=_POOL,
        value=PROCEED,
        example="proceed",
        meaning="in takeover mode: allow the update that the Event `TakeoverHeld` reports; vmherd writes `done` if it "
        "manages the pool, and `held ...` while the update waits for permission",
        otherwise="the first update waits",
        writer=Writer.BOTH,
    ),
    Annotation(
        name=ADOPTED_TEMPLATE,
        on=(Place.SET,),
        value=OPAQUE,
        meaning="the template of the VMIs without the label `vmherd.dev/template-hash`, for example after a takeover",
        writer=Writer.CONTROLLER,
    ),
    Annotation(
        name=HEALED,
        on=_POOL,
        value=OPAQUE,
        meaning="the recent healings, so that the delays between healings survive a restart of vmherd",
        writer=Writer.CONTROLLER,
    ),
    Annotation(
        name=RECREATED,
        on=_POOL,
        value=OPAQUE,
        meaning="the VMs that an update has deleted, until they exist again",
        writer=Writer.CONTROLLER,
    ),
    Annotation(
        name=UNREADY,
        on=_POOL,
        value=OPAQUE,
        meaning="VMs that are not ready, each with the time at which it became unready; a restart of vmherd does not "
        "reset the time",
        writer=Writer.CONTROLLER,
    ),
    Annotation(
        name=PARTITION_REVISION,
        on=_POOL,
        value=OPAQUE,
        meaning="the revision of the VMs below the partition",
        writer=Writer.CONTROLLER,
    ),
    Annotation(
        name=EARLY_FAILURES,
        on=(Place.VMI,),
        value=OPAQUE,
        meaning="how many VMIs failed in a row before this VMI, so that the delays between "
        "replacements survive a restart of vmherd",
        writer=Writer.CONTROLLER,
    ),
)

BY_NAME: Final[Mapping[str, Annotation]] = {each.name: each for each in CATALOGUE}
