"""Writes the metrics of single replica sets and pools, as kube-state-metrics does for ReplicaSets and StatefulSets.

The replica gauges are named `vmherd_replicas_*`. They have the kind as a label, so that one query covers all kinds. The
names of the other series begin with a prefix for the kind. `kubevirt_vmpool_*` are the names that KubeVirt uses or has
proposed for pools. `kubevirt_vmirs_*` follow the same pattern. A field that an object does not have has no series. For
example, a status without `updatedReplicas` gives no gauge of updated replicas.

All functions read immutable values and return text, so they may run on any thread. Ten thousand objects have two
hundred thousand lines. To save time, the labels of an object are formatted only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from controller.kinds import KINDS, Kind


class ConditionFigure(Protocol):
    """A condition of a status."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class SetFigures(Struct, frozen=True, gc=False):
    """The values of one replica set or pool that its metrics show."""

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
    """How many VMs of one object were started, stopped and healed since this process began to reconcile."""

    started: int = 0
    stopped: int = 0
    healed: int = 0


Tallies: TypeAlias = Mapping[tuple[str, str, str], MachineTally]
"""The tally of each object, by kind, namespace and name."""

FigureSource: TypeAlias = Callable[[], Iterable[SetFigures]]
"""A function that returns the figures of all objects of a kind.

It is called on the event loop, so it must return quickly. Another thread iterates the result, so the result must read
only immutable values. A generator over a store's `values()` does that."""

Number: TypeAlias = Callable[[SetFigures], float | None]


class Family(NamedTuple):
    """All lines of one metric. The name of a counter is without the suffix `_total`."""

    name: str
    type: str
    help: str
    lines: Iterable[str]


REPLICA_GAUGES: Mapping[str, str] = {
    "desired": "Replicas that the spec requests; 1 if the spec has no number.",
    "current": "Replicas that exist, from the status.",
    "ready": "Replicas that are ready, from the status.",
    "updated": "Replicas with the current template, from the status.",
}

ROLLS_OUT = "1 if every outdated replica is replaced automatically, 0 if outdated replicas may stay."
TAKEOVER_HELD = "1 while the first update of a pool from KubeVirt waits for permission; no series otherwise."
REPLICA_FAILURE = "ReplicaFailure"


def _fails(figures: SetFigures) -> float:
    return any(each.type == REPLICA_FAILURE and each.status == "True" for each in figures.conditions)


def _created(figures: SetFigures) -> float | None:
    return None if figures.created is None else int(figures.created.timestamp())


KUBEVIRT_GAUGES: Mapping[str, tuple[str, Number]] = {
    "desired_replicas": (REPLICA_GAUGES["desired"], attrgetter("desired")),
    "replicas": (REPLICA_GAUGES["current"], attrgetter("current")),
    "ready_replicas": (REPLICA_GAUGES["ready"], attrgetter("ready")),
    "updated_replicas": (REPLICA_GAUGES["updated"], attrgetter("updated")),
}
"""The replica gauges under the names that KubeVirt has proposed for pools."""

STATE_GAUGES: Mapping[str, tuple[str, Number]] = {
    "paused": ("1 while spec.paused is true.", attrgetter("paused")),
    "replica_failure": ("1 while the condition ReplicaFailure is true.", _fails),
    "metadata_generation": (
        "The generation of the object, which increases with each change of the spec.",
        attrgetter("generation"),
    ),
    "status_observed_generation": (
        "The generation from which the status was computed.",
        attrgetter("observed_generation"),
    ),
    "create_date_timestamp_seconds": ("When the object was created, in seconds since 1970.", _created),
}

TALLIES: Mapping[str, tuple[str, Callable[[MachineTally], int]]] = {
    "vms_started": (
        "VMs that were created for the object since this process began to reconcile.",
        attrgetter("started"),
    ),
    "vms_stopped": ("VMs of the object that were deleted, for any reason.", attrgetter("stopped")),
    "auto_healing_operations": (
        "VMs of the object that autohealing deleted in order to replace them.",
        attrgetter("healed"),
    ),
}


class _Row(NamedTuple):
    """The figures of an object, with its name and namespace as formatted labels."""

    labels: str
    figures: SetFigures


def render(families: Iterable[Family], *, openmetrics: bool) -> str:
    """Return the text of these families, in the OpenMetrics format or in Prometheus' text format.

    Families without lines are left out.
    """
    parts = []
    for family in families:
        lines = "\n".join(family.lines)
        if lines:
            suffix = "_total" if family.type == "counter" and not openmetrics else ""
            name = f"{family.name}{suffix}"
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n{lines}\n")
    return "".join(parts)


def families_of(sources: Iterable[Iterable[SetFigures]], tallies: Tallies) -> Iterator[Family]:
    """Yield all families of metrics for these objects."""
    by_kind: dict[str, list[_Row]] = {}
    for source in sources:
        for figures in source:
            labels = f'name="{_escaped(figures.name)}",namespace="{_escaped(figures.namespace)}"'
            by_kind.setdefault(figures.kind, []).append(_Row(labels, figures))
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
    yield Family(name, "gauge", "Always 1; the labels identify the object.", lines)
    name = f"{prefix}_status_condition"
    yield Family(name, "gauge", "1 for each condition of the status.", _conditions(name, rows))
    name = f"{prefix}_printable_status"
    lines = (
        f'{name}{{{labels},status="{_escaped(figures.printable_status)}"}} 1'
        for labels, figures in rows
        if figures.printable_status
    )
    yield Family(name, "gauge", "1 for the word in status.printableStatus.", lines)


def _numbers(name: str, number: Number, rows: Iterable[_Row]) -> Iterator[str]:
    for labels, figures in rows:
        value = number(figures)
        if value is not None:
            yield f"{name}{{{labels}}} {int(value)}"


def _conditions(name: str, rows: Iterable[_Row]) -> Iterator[str]:
    for labels, figures in rows:
        # One condition for each type. The API server accepts two conditions of a type, Prometheus no duplicate series.
        for each in {condition.type: condition for condition in figures.conditions}.values():
            reason, status = _escaped(each.reason or ""), _escaped(each.status.lower())
            yield f'{name}{{condition="{_escaped(each.type)}",{labels},reason="{reason}",status="{status}"}} 1'


def _tallies(kind: Kind[Any], rows: Sequence[_Row], tallies: Tallies) -> Iterator[Family]:
    nothing = MachineTally()
    labelled = [
        (
            f'namespace="{_escaped(figures.namespace)}",{kind.name}_name="{_escaped(figures.name)}"',
            tallies.get((figures.kind, figures.namespace, figures.name), nothing),
        )
        for _, figures in rows
    ]
    for field, (help_text, number) in TALLIES.items():
        name = f"{kind.metric_prefix}_{field}"
        lines = [f"{name}_total{{{labels}}} {number(tally)}" for labels, tally in labelled]
        yield Family(name, "counter", help_text, lines)


def _escaped(text: str) -> str:
    """Escape the value of a label. Names of objects need no escape, but a status can contain any text."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
