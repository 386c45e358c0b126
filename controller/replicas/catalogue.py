"""The catalogue of the annotations `vmherd.dev/...` (P23).

The controller, the admission policy of the chart and the reference page use the same entries.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from heapq import nsmallest
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt import annotations as names
from controller.kubevirt.busy import CLAIMANT_PATTERN, TIME_PATTERN, time_of
from informers.meta import KubeObject, ObjectMeta, annotations_of

T = TypeVar("T", bound=KubeObject)


class Place(StrEnum):
    """The objects whose annotations the controller sees. The value is the plural for messages."""

    SET = "sets"
    POOL = "pools"
    VM = "VMs"
    VMI = "VMIs of sets"
    VMI_OF_VM = "VMIs of VMs"
    """The controller reads the end of the work, and its own mark of a drain. It reads the others of the VMs."""


class Value(Struct, frozen=True):
    """The valid values of an annotation: the whole value matches `pattern`, which Python and RE2 (Kubernetes) read
    alike. If `low` is not None, the value is also a number from `low` to `HIGHEST`. `parse` reads it for a decision,
    and returns None if it is not valid. `form` completes the sentence "the value must be ...".
    """

    form: str
    pattern: str
    low: int | None = None
    parse: Callable[[str], object | None] | None = None


class Annotation(Struct, frozen=True):
    """An annotation that belongs on the objects of `on`. If the value is `OPAQUE`, only vmherd writes the annotation.

    `otherwise` completes the sentence "the value is not valid, so ...". It is empty if every value is valid. If it
    `stops` the work, a wrong value is told before all others.
    """

    name: str
    on: tuple[Place, ...]
    value: Value
    otherwise: str = ""
    stops: bool = False

    @property
    def harm(self) -> int:
        """The rank of a wrong value: the first stops the work, and the last counts as the usual value."""
        return 0 if self.stops else 2 if self.otherwise.startswith("it counts as ") else 1


LOWEST, HIGHEST = -(2**31), 2**31 - 1

_NUMBER: Final = "-?(0|[1-9][0-9]{0,9})"
_AMOUNT: Final = "([1-9][0-9]{0,8}|[1-9][0-9]?%|100%)"

FLAG: Final = Value('"true" or "false"', "true|false")
INTEGER: Final = Value("an integer", _NUMBER, low=LOWEST)
COUNT: Final = Value("0 or more", _NUMBER, low=0)
SECONDS_OR_NONE: Final = Value("plain seconds, such as 60, or 0", _NUMBER, low=0)
SECONDS: Final = Value("plain seconds, such as 60", _NUMBER, low=1)
AMOUNT: Final = Value('a number from 1, or "1%" to "100%"', _AMOUNT)


def _limit(name: str, amount: str) -> str:
    return rf"\s*{name}\s*=\s*{amount}\s*"


_AMOUNT_OR_ZERO: Final = f"({_AMOUNT}|0%?)"
_UNAVAILABLE, _SURGE = _limit("maxUnavailable", _AMOUNT), _limit("maxSurge", _AMOUNT)
_MAYBE_UNAVAILABLE, _MAYBE_SURGE = _limit("maxUnavailable", _AMOUNT_OR_ZERO), _limit("maxSurge", _AMOUNT_OR_ZERO)
ROLLING: Final = Value(
    "maxUnavailable=N or maxSurge=N,maxUnavailable=M, each a number or 1% to 100%, and one of the two may be 0",
    f"{_UNAVAILABLE}(,{_MAYBE_SURGE})?|{_MAYBE_UNAVAILABLE},{_SURGE}"
    f"|{_SURGE},{_MAYBE_UNAVAILABLE}|{_MAYBE_SURGE},{_UNAVAILABLE}",
)
_STEP: Final = r"\s*(0|[1-9][0-9]{0,9}|[0-9]{1,2}%|100%)(:([0-9]{1,5}[hms]){1,3})?\s*"


def _falling(steps: str) -> str | None:
    """Return the steps, or None if one keeps more VMs from the update than a step before. Zero is also 0%."""
    fewest: dict[bool, int] = {}
    for step in steps.split(","):
        number = step.partition(":")[0].strip()
        kinds = {number.endswith("%")} if number != "0" else {True, False}
        kept = int(number.rstrip("%"))
        if any(kept > fewest.get(each, kept) for each in kinds):
            return None
        fewest.update(dict.fromkeys(kinds, kept))
    return steps


STEPS: Final = Value(
    "an ordinal, a percentage, or up to ten falling steps with pauses such as 90%,50%:10m,0",
    f"{_STEP}(,{_STEP}){{0,9}}",
    parse=_falling,
)
TIME: Final = Value("a time such as 2026-01-31T17:00:00Z", TIME_PATTERN, parse=time_of)
CLAIMANT: Final = Value("1 to 253 characters without spaces, such as job-123", CLAIMANT_PATTERN)
DISRUPTION: Final = Value('"live", "restart" or "recreate"', "live|restart|recreate")
REST_MODE: Final = Value('"stopped" or "paused"', "stopped|paused")
STALLED: Final = Value('"stalled"', "stalled")
FINISHED: Final = Value('"finished"', "finished")
PROCEED: Final = Value('"proceed"', "proceed|done|held.*")
OPAQUE: Final = Value("what vmherd writes", "(?s).*")

_MEMBERS: Final = (Place.VM, Place.VMI)
_MACHINES: Final = (Place.VM, Place.VMI, Place.VMI_OF_VM)
_OWNERS: Final = (Place.SET, Place.POOL)
_SET: Final = (Place.SET,)
_POOL: Final = (Place.POOL,)

CATALOGUE: Final = (
    Annotation(names.REMOVE, _MEMBERS, FLAG, "it is not marked"),
    Annotation(names.PROTECT, _MEMBERS, FLAG, "it is protected"),
    Annotation(names.DELETION_COST, _MEMBERS, INTEGER, "it counts as 0"),
    Annotation(names.BUSY_UNTIL, _MACHINES, TIME, "it counts as busy"),
    Annotation(names.CLAIMED_BY, (Place.VM,), CLAIMANT, "it is claimed"),
    Annotation(names.CLAIMED_UNTIL, (Place.VM,), TIME, "the claim has no end"),
    Annotation(names.MAX_CLAIMED, _POOL, COUNT, "it counts as ten times spec.replicas, and as 10 at least"),
    Annotation(names.STANDBY, _POOL, AMOUNT, "there is no standby VM"),
    Annotation(names.STANDBY_MODE, _POOL, REST_MODE, 'it counts as "stopped"'),
    Annotation(names.REUSE, _POOL, FLAG, 'it counts as "false"'),
    Annotation(names.ROLLING_UPDATE, _SET, ROLLING, "outdated VMIs are not replaced", stops=True),
    Annotation(names.MIN_READY, _POOL, SECONDS_OR_NONE, "it counts as 0"),
    Annotation(names.PARTITION, _POOL, STEPS, "nothing is rolled out", stops=True),
    Annotation(names.MAX_UNHEALTHY, _POOL, AMOUNT, "it counts as 50%"),
    Annotation(names.MOST_DISRUPTIVE, _POOL, DISRUPTION, "it counts as live"),
    Annotation(names.MIGRATE, _POOL, FLAG, 'it counts as "false"'),
    Annotation(names.ADOPT_DISKS, _POOL, FLAG, 'it counts as "false"'),
    Annotation(names.INDEX_SYSPREP, _POOL, FLAG, 'it counts as "false"'),
    Annotation(names.PROGRESS_DEADLINE, _OWNERS, SECONDS, "it counts as 600"),
    Annotation(names.ROLLBACK, _OWNERS, STALLED, "no VM returns by itself"),
    Annotation(names.REPLACE_UNREADY_AFTER, _OWNERS, SECONDS, "no VM is replaced because it is not ready"),
    Annotation(names.REPLACE_FINISHED, _POOL, FLAG, "finished VMs stay"),
    Annotation(names.SCALE_IN, _OWNERS, FINISHED, "it counts as finished"),
    Annotation(names.SUBSTITUTE_LOST_AFTER, _POOL, SECONDS, "lost VMs have no substitutes"),
    Annotation(names.SUBSTITUTE, (Place.VM,), FLAG, "it is no substitute"),
    Annotation(names.DRAIN_SECONDS, _OWNERS, SECONDS, "it counts as 600"),
    Annotation(names.DRAINED, _MEMBERS, FLAG, "the VM goes on to drain"),
    Annotation(names.DISRUPTION_BUDGET, _OWNERS, AMOUNT, "it counts as 1"),
    Annotation(names.TAKEOVER, _POOL, PROCEED, "the first update waits", stops=True),
    Annotation(names.ADOPTED_TEMPLATE, _SET, OPAQUE),
    Annotation(names.HEALED, _POOL, OPAQUE),
    Annotation(names.RECREATED, _POOL, OPAQUE),
    Annotation(names.UNREADY, _POOL, OPAQUE),
    Annotation(names.PARTITION_REVISION, _POOL, OPAQUE),
    Annotation(names.PARTITION_STEP, _POOL, OPAQUE),
    Annotation(names.SCOUTED, _POOL, OPAQUE),
    Annotation(names.RELEASED, _OWNERS, OPAQUE),
    Annotation(names.READY_REVISION, _OWNERS, OPAQUE),
    Annotation(names.ROLLED_BACK, _OWNERS, OPAQUE),
    Annotation(names.HISTORY, _OWNERS, OPAQUE),
    Annotation(names.DRAINING, _MACHINES, OPAQUE),
    Annotation(names.STANDBY_STATE, (Place.VM,), OPAQUE),
    Annotation(names.EARLY_FAILURES, (Place.VMI,), OPAQUE),
)
"""What each annotation means, with an example, is in `tools/reference/annotations.md.in`."""

BY_NAME: Final[Mapping[str, Annotation]] = {each.name: each for each in CATALOGUE}

MOST_UNKNOWN: Final = 10
"""The largest number of unknown annotations of an object that the caches keep (P23)."""

REST: Final = names.PREFIX
"""The number of the other unknown annotations, as an annotation of a cached object. No user can write an annotation
with this name, because the API server refuses a name that ends with a slash.
"""

_LONGEST_NUMBER: Final = 20

_BEGINNING: Final = slice(len(names.PREFIX), len(names.PREFIX) + 3)
_BEGINNINGS: Final = frozenset(name[_BEGINNING] for name in BY_NAME)


def own_annotations(meta: ObjectMeta) -> Mapping[str, str]:
    """Return the annotations of this controller. Of the unknown ones, the worst are kept, which begin like a known one,
    as they may be spelled wrong, and the number of the others.
    """
    own = {name: value for name, value in annotations_of(meta).items() if name.startswith(names.PREFIX)}
    unknown = [name for name in own if name not in BY_NAME and name != REST]
    if len(unknown) <= MOST_UNKNOWN:
        return own
    kept = nsmallest(MOST_UNKNOWN, unknown, key=rank_of_unknown)
    known = {name: value for name, value in own.items() if name in BY_NAME}
    return {**known, **{name: own[name] for name in kept}, REST: str(len(unknown) - MOST_UNKNOWN)}


def rank_of_unknown(name: str) -> tuple[bool, str]:
    """Return the sort key of an unknown annotation. The worst comes first."""
    return name[_BEGINNING] not in _BEGINNINGS, name


@lru_cache(maxsize=1024)
def _generation(number: str) -> Mapping[str, str]:
    """Return the only annotation of most VMIs. They share it."""
    return {names.VM_GENERATION: number[:_LONGEST_NUMBER]}


def without_foreign_annotations(obj: T) -> T:
    """Return the object for the cache, without foreign annotations: 256 KiB of each object would fill the memory."""
    if not obj.metadata.annotations:
        return obj
    own, generation = own_annotations(obj.metadata), obj.metadata.annotations.get(names.VM_GENERATION)
    if generation is not None:
        own = {**own, names.VM_GENERATION: generation[:_LONGEST_NUMBER]} if own else _generation(generation)
    if own == obj.metadata.annotations:
        return obj
    changed: T = replace(obj, metadata=replace(obj.metadata, annotations=own or None))  # type: ignore[type-var]
    return changed
