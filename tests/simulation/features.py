"""What users may write: annotations of the catalogue with valid, odd and bad values, and fields of the specs."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import combinations
from random import Random
from typing import Any, Final, TypeAlias

from controller.kubevirt import annotations as names
from controller.replicas.catalogue import BY_NAME, Place
from tests.fakes.requests import Document
from tests.fakes.rules import wire

Field: TypeAlias = tuple[str, Any]

GOOD_VALUES: Final[dict[str, tuple[str, ...]]] = {
    names.ROLLING_UPDATE: (
        "maxUnavailable=1",
        "maxUnavailable=50%",
        "maxSurge=1,maxUnavailable=0",
        "maxSurge=2,maxUnavailable=0",
    ),
    names.MIN_READY: ("0", "3", "10"),
    names.PARTITION: ("0", "1", "2", "50%", "50%:30s,0", "50%:200s,0", "75%:60s,50%:30s,0", "2:40s,0"),
    names.MAX_UNHEALTHY: ("1", "50%", "100%"),
    names.MOST_DISRUPTIVE: ("live", "restart", "recreate"),
    names.INDEX_SYSPREP: ("true", "false"),
    names.PROGRESS_DEADLINE: ("20", "40", "90"),
    names.ROLLBACK: ("stalled",),
    names.REPLACE_UNREADY_AFTER: ("10", "30"),
    names.REPLACE_FINISHED: ("true", "false"),
    names.SCALE_IN: ("finished",),
    names.SUBSTITUTE_LOST_AFTER: ("5", "15"),
    names.DRAIN_SECONDS: ("5", "20", "60"),
    names.DISRUPTION_BUDGET: ("1", "50%"),
    names.TAKEOVER: ("proceed",),
    names.STANDBY: ("1", "2", "50%"),
    names.STANDBY_MODE: ("paused", "stopped"),
    names.REUSE: ("true",),
}
"""The valid values of the annotations of sets and pools."""

BAD_VALUES: Final = ("", "0", "-1", "abc", "true", "99999999999", "1h", "é", "50%", "null")

MEMBER_VALUES: Final[dict[str, tuple[str, ...]]] = {
    names.REMOVE: ("true", "yes"),
    names.PROTECT: ("true", "false", "True"),
    names.DELETION_COST: ("-5", "10", "x"),
    names.DRAINED: ("true",),
    names.SUBSTITUTE: ("true",),
}

FEATURES: Final = tuple(each.name for each in BY_NAME.values() if each.name in GOOD_VALUES)
"""The opt-in features of sets and pools."""


OFF: Final = {names.MIN_READY: "0", names.PARTITION: "0", names.STANDBY_MODE: "stopped"}
"""The valid values that ask for nothing, beside "false"."""


def features_of(kind: str) -> tuple[str, ...]:
    place = Place.SET if kind == "set" else Place.POOL
    return tuple(name for name in FEATURES if place in BY_NAME[name].on)


def pairs_of(kind: str) -> tuple[tuple[str, str], ...]:
    """Every two features that a set or pool can have at the same time."""
    return tuple(combinations(features_of(kind), 2))


def is_in_force(name: str, value: str) -> bool:
    """True if the value is valid and asks for something."""
    return re.fullmatch(BY_NAME[name].value.pattern, value) is not None and value not in ("false", OFF.get(name))


def in_force(kind: str, annotations: Mapping[str, str], *, budgets: bool) -> tuple[str, ...]:
    """The features that a set or pool with these annotations has. `budgets` is False if the controller keeps none."""
    found = (name for name in features_of(kind) if name in annotations and is_in_force(name, annotations[name]))
    return tuple(name for name in found if budgets or name != names.DISRUPTION_BUDGET)


def some_features(kind: str, turn: int, chance: Random) -> dict[str, str]:
    """Three to five features, nearly all in force. Pairs take turns, so that each is as frequent as any other."""
    every = pairs_of(kind)
    chosen = {*every[turn % len(every)], *every[(turn + len(every) // 2) % len(every)]}
    if chance.random() < 0.9:
        chosen.add(chance.choice(features_of(kind)))
    values = {name: [each for each in GOOD_VALUES[name] if is_in_force(name, each)] for name in sorted(chosen)}
    return {name: chance.choice(good if chance.random() < 0.97 else BAD_VALUES) for name, good in values.items()}


def some_annotation(kind: str, chance: Random) -> tuple[str, str]:
    """An annotation of a set or pool, with a valid value in nine cases of ten."""
    name = chance.choice(features_of(kind))
    values = GOOD_VALUES[name] if chance.random() < 0.9 else BAD_VALUES
    return name, chance.choice(values)


def some_mark(chance: Random, now: datetime) -> tuple[str, str]:
    if chance.random() < 0.35:
        until = now + timedelta(seconds=chance.choice((5, 30, 3600)))
        return names.BUSY_UNTIL, chance.choice((wire(until), wire(until), wire(until), "soon"))
    name = chance.choice(tuple(MEMBER_VALUES))
    return name, chance.choice(MEMBER_VALUES[name])


def some_field(kind: str, chance: Random) -> Field:
    """A field of the spec beside the template and the number of replicas. None removes the field."""
    if kind == "set":
        return "paused", chance.choice((True, None))
    field = chance.choice(tuple(_FIELD_VALUES))
    return field, chance.choice(_FIELD_VALUES[field])


_SORTS: Final = tuple(
    {"sortPolicy": each} for each in ("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random")
)
_FIELD_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "paused": (True, None),
    "maxUnavailable": (1, 2, "50%", "25%", None),
    "scaleInStrategy": (
        None,
        {"unmanaged": {}},
        {"opportunistic": {}},
        {"opportunistic": {"statePreservation": "Offline"}},
        {"proactive": {"statePreservation": "Offline"}},
        {"proactive": {"statePreservation": "Online"}},
        *({"proactive": {"selectionPolicy": each}} for each in _SORTS),
    ),
    "updateStrategy": (
        None,
        {"unmanaged": {}},
        {"opportunistic": {}},
        *({"proactive": {"selectionPolicy": each}} for each in _SORTS),
    ),
    "autohealing": (
        None,
        {"startUpFailureThreshold": 2, "minFailingToStartDuration": "10s"},
        {"minFailingToStartDuration": "5s"},
        {},
    ),
    "nameGeneration": (None, {"appendIndexToSecretRefs": True}, {"appendIndexToConfigMapRefs": True}),
    "appendPostfixToConfigMapReferences": (None, True),
    "appendPostfixToSecretReferences": (None, True),
}


def vmi_spec(image: str, disks: tuple[str, ...] = ()) -> Document:
    volumes: list[Document] = [{"name": "root", "containerDisk": {"image": image}}]
    volumes += [{"name": each, "dataVolume": {"name": each}} for each in disks]
    devices = {"disks": [{"name": each["name"], "disk": {"bus": "virtio"}} for each in volumes]}
    return {"domain": {"cpu": {"sockets": 1}, "devices": devices}, "volumes": volumes}


def vm_template(labels: dict[str, str], image: str, disks: tuple[str, ...], size: str, strategy: str) -> Document:
    inner = {k: v for k, v in labels.items()}
    spec: Document = {
        "runStrategy": strategy,
        "template": {"metadata": {"labels": inner}, "spec": vmi_spec(image, disks)},
    }
    if disks:
        storage = {"storage": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}}}
        spec["dataVolumeTemplates"] = [{"metadata": {"name": each}, "spec": storage} for each in disks]
    outer = {k: v for k, v in labels.items() if k != names.IN_SERVICE}
    return {"metadata": {"labels": outer}, "spec": spec}


_TAKEN: Final = {
    "virtualmachineinstances": (names.DRAINING, names.EARLY_FAILURES, names.IN_SERVICE),
    "virtualmachines": (names.DRAINING, names.STANDBY_STATE, names.SUBSTITUTE),
    "virtualmachinepools": (
        *(names.PARTITION_STEP, names.PARTITION_REVISION, names.ROLLED_BACK, names.READY_REVISION, names.RELEASED),
        *(names.HEALED, names.UNREADY, names.RECREATED, names.SCOUTED),
    ),
    "virtualmachineinstancereplicasets": (
        *(names.ROLLED_BACK, names.READY_REVISION, names.RELEASED, names.ADOPTED_TEMPLATE),
    ),
}
RELABELLED: Final = (
    *(f"virtualmachineinstances {names.TEMPLATE_HASH}{value}" for value in ("", " bogus", " older")),
    *("virtualmachineinstances ownerReferences", "virtualmachines ownerReferences", "virtualmachines runStrategy"),
    *(f"{plural} {names.REVISION_NAME} bogus" for plural in ("virtualmachines", "virtualmachineinstances")),
    *(f"{plural} {name}" for plural, taken in _TAKEN.items() for name in taken),
    f"virtualmachines {names.STANDBY_STATE} preparing",
)
"""The labels and annotations that another controller changes or removes, each with the plural of its objects."""
