"""A line for each figure of each replica set and pool: what kube-state-metrics shows of a ReplicaSet or a StatefulSet.

Replicas have names of our own, `vmherd_replicas_*`, with the kind as a label, so that one query covers both kinds. All
the rest is named after the kind: `kubevirt_vmpool_*` as KubeVirt itself names what it tells of pools, or means to, and
`kubevirt_vmirs_*` likewise. What an object does not tell, has no line: a status without `updatedReplicas` says nothing
about its rollout.

Everything here is text made from values that never change, on whichever thread. Ten thousand objects are two hundred
thousand lines: the labels of an object are put together once, and the lines of a family share everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from controller.kinds import KINDS, Kind


class ConditionFigure(Protocol):
    """One of a status' conditions."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class SetFigures(Struct, frozen=True, gc=False):
    """One replica set or pool, in figures."""

    kind: str
    namespace: str
    name: str
    desired: int
    current: int
    ready: int
    updated: int | None
    uid: str = ""
    group: str = ""
    paused: bool = False
    rolls_out: bool = False
    takeover_held: bool = False
    generation: int | None = None
    observed_generation: int | None = None
    created: datetime | None = None
    printable_status: str = ""
    conditions: Sequence[ConditionFigure] = ()


class MachineTally(NamedTuple):
    """What was done to the VMs of one object since this process began to work."""

    started: int = 0
    stopped: int = 0
    healed: int = 0


Tallies: TypeAlias = Mapping[tuple[str, str, str], MachineTally]
"""By kind, namespace and name."""

FigureSource: TypeAlias = Callable[[], Iterable[SetFigures]]
"""Called on the loop, and must be quick: what it returns is iterated on another thread, so it must not look at
anything that changes. A generator over a store's `values()` is right."""

Number: TypeAlias = Callable[[SetFigures], float | None]


class Family(NamedTuple):
    """Lines of one name. For a counter, the name is without its `_total`."""

    name: str
    type: str
    help: str
    lines: Iterable[str]


REPLICA_GAUGES: Mapping[str, str] = {
    "desired": "Replicas that the object's spec asks for.",
    "current": "Replicas that exist, as the object's status says.",
    "ready": "Replicas that are ready, as the object's status says.",
    "updated": "Replicas of the current template, as the object's status says.",
}

ROLLS_OUT = "1 where outdated replicas are replaced unasked, 0 where somebody has to restart or replace them."
TAKEOVER_HELD = "1 while the first update of a pool that is taken over is held; no series otherwise."
REPLICA_FAILURE = "ReplicaFailure"


def _fails(figures: SetFigures) -> float:
    return any(each.type == REPLICA_FAILURE and each.status == "True" for each in figures.conditions)


def _created(figures: SetFigures) -> float | None:
    return None if figures.created is None else int(figures.created.timestamp())


KUBEVIRT_GAUGES: Mapping[str, tuple[str, Number]] = {
    "desired_replicas": ("Replicas that the spec asks for; 1 where it does not say.", attrgetter("desired")),
    "replicas": ("Replicas that exist, as the status says.", attrgetter("current")),
    "ready_replicas": ("Replicas that are ready, as the status says.", attrgetter("ready")),
    "updated_replicas": ("Replicas of the current template, as the status says.", attrgetter("updated")),
}
"""What the replica gauges are called by KubeVirt, which has proposed these names for pools."""

STATE_GAUGES: Mapping[str, tuple[str, Number]] = {
    "paused": ("1 while the object is paused.", attrgetter("paused")),
    "replica_failure": ("1 while the condition ReplicaFailure is true.", _fails),
    "metadata_generation": ("The generation of the object: it grows with its spec.", attrgetter("generation")),
    "status_observed_generation": (
        "The generation that the status was made for.",
        attrgetter("observed_generation"),
    ),
    "create_date_timestamp_seconds": ("When the object was created.", _created),
}

TALLIES: Mapping[str, tuple[str, Callable[[MachineTally], int]]] = {
    "vms_started": ("VMs that were created for the object.", attrgetter("started")),
    "vms_stopped": ("VMs of the object that were deleted.", attrgetter("stopped")),
    "auto_healing_operations": ("VMs of the object that were deleted because they failed.", attrgetter("healed")),
}


class _Row(NamedTuple):
    """An object, and its place as labels."""

    labels: str
    figures: SetFigures


def render(families: Iterable[Family], *, openmetrics: bool) -> str:
    """The text of these families, in either of the two formats; those without a line are left out."""
    parts = []
    for family in families:
        lines = "\n".join(family.lines)
        if lines:
            suffix = "_total" if family.type == "counter" and not openmetrics else ""
            name = f"{family.name}{suffix}"
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n{lines}\n")
    return "".join(parts)


def families_of(sources: Iterable[Iterable[SetFigures]], tallies: Tallies) -> Iterator[Family]:
    """All that there is to tell of these objects."""
    by_kind: dict[str, list[_Row]] = {}
    for source in sources:
        for figures in source:
            place = f'name="{_escaped(figures.name)}",namespace="{_escaped(figures.namespace)}"'
            by_kind.setdefault(figures.kind, []).append(_Row(place, figures))
    for field, help_text in REPLICA_GAUGES.items():
        lines = (line for kind, rows in by_kind.items() for line in _replicas(kind, field, rows))
        yield Family(f"vmherd_replicas_{field}", "gauge", help_text, lines)
    lines = (line for kind, rows in by_kind.items() for line in _flags("vmherd_rolls_out", kind, rows))
    yield Family("vmherd_rolls_out", "gauge", ROLLS_OUT, lines)
    held = (row for rows in by_kind.values() for row in rows if row.figures.takeover_held)
    yield Family(
        "vmherd_takeover_held", "gauge", TAKEOVER_HELD, (f"vmherd_takeover_held{{{each.labels}}} 1" for each in held)
    )
    for kind in KINDS:
        rows = by_kind.get(kind.kind, ())
        if kind.has_kubevirt_gauges:
            yield from _gauges(kind.metric_prefix, KUBEVIRT_GAUGES, rows)
        yield from _state(kind.metric_prefix, rows)
        if kind.has_tally:
            yield from _tallies(kind, rows, tallies)


def _replicas(kind: str, field: str, rows: Iterable[_Row]) -> Iterator[str]:
    start, number = f'vmherd_replicas_{field}{{kind="{_escaped(kind)}",', attrgetter(field)
    for labels, figures in rows:
        value = number(figures)
        if value is not None:
            yield f"{start}{labels}}} {value}"


def _flags(name: str, kind: str, rows: Iterable[_Row]) -> Iterator[str]:
    start = f'{name}{{kind="{_escaped(kind)}",'
    return (f"{start}{labels}}} {int(figures.rolls_out)}" for labels, figures in rows)


def _gauges(prefix: str, gauges: Mapping[str, tuple[str, Number]], rows: Sequence[_Row]) -> Iterator[Family]:
    for name, (help_text, number) in gauges.items():
        yield Family(f"{prefix}_{name}", "gauge", help_text, _numbers(f"{prefix}_{name}", number, rows))


def _state(prefix: str, rows: Sequence[_Row]) -> Iterator[Family]:
    yield from _gauges(prefix, STATE_GAUGES, rows)
    name = f"{prefix}_info"
    lines = (
        f'{name}{{group="{_escaped(figures.group)}",{labels},uid="{_escaped(figures.uid)}"}} 1'
        for labels, figures in rows
    )
    yield Family(name, "gauge", "Always 1; which object it is, is in the labels.", lines)
    name = f"{prefix}_status_condition"
    yield Family(name, "gauge", "1 for each condition of the status, as it is now.", _conditions(name, rows))
    name = f"{prefix}_printable_status"
    lines = (
        f'{name}{{{labels},status="{_escaped(figures.printable_status)}"}} 1'
        for labels, figures in rows
        if figures.printable_status
    )
    yield Family(name, "gauge", "1 for the word in which the status sums the object up.", lines)


def _numbers(name: str, number: Number, rows: Iterable[_Row]) -> Iterator[str]:
    for labels, figures in rows:
        value = number(figures)
        if value is not None:
            yield f"{name}{{{labels}}} {int(value)}"


def _conditions(name: str, rows: Iterable[_Row]) -> Iterator[str]:
    for labels, figures in rows:
        # One of each type: the API server does not keep a status from having two, and Prometheus takes no twins.
        for each in {condition.type: condition for condition in figures.conditions}.values():
            reason, status = _escaped(each.reason or ""), _escaped(each.status.lower())
            yield f'{name}{{condition="{_escaped(each.type)}",{labels},reason="{reason}",status="{status}"}} 1'


def _tallies(kind: Kind[Any], rows: Sequence[_Row], tallies: Tallies) -> Iterator[Family]:
    nothing = MachineTally()
    told = [
        (
            f'namespace="{_escaped(figures.namespace)}",{kind.name}_name="{_escaped(figures.name)}"',
            tallies.get((figures.kind, figures.namespace, figures.name), nothing),
        )
        for _, figures in rows
    ]
    for field, (help_text, number) in TALLIES.items():
        name = f"{kind.metric_prefix}_{field}"
        lines = [f"{name}_total{{{labels}}} {number(tally)}" for labels, tally in told]
        yield Family(name, "counter", help_text, lines)


def _escaped(text: str) -> str:
    """A label's value. Names of objects need no escape, but what stands in a status may be anything."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
