"""Writes the metrics of single replica sets and pools, as kube-state-metrics does for ReplicaSets and StatefulSets.

The replica gauges are named `vmherd_replicas_*`. These gauges have the kind as a label, so that one query can read the
replicas of all kinds. The names of most other series begin with a prefix for the kind. The series of pools have the
names `kubevirt_vmpool_*`, of which KubeVirt has proposed most. The series of replica sets have similar names,
`kubevirt_vmirs_*`. If an object does not have a field, the page has no series for this field. For example, there
is no gauge of updated replicas if the status has no `updatedReplicas`.

All functions read immutable values and return text, so any thread may call the functions. For ten thousand objects, the
page has about two hundred thousand lines. So to save time, the labels of each object are formatted only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from controller.kinds import KINDS, Kind
from controller.kubevirt.resources import VMIS, VMS
from controller.replicas.conditions import REPLICA_BACK_OFF, REPLICA_FAILURE
from informers.resource import Resource


class ConditionFigure(Protocol):
    """A condition in the status of an object, with only the fields that the metrics read."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class SetFigures(Struct, frozen=True, gc=False):
    """The values that the metrics page shows for one replica set or pool.

    `max_unavailable` is None if the spec has no limit, or if all replicas are ready.
    """

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
    max_unavailable: int | None = None
    generation: int | None = None
    observed_generation: int | None = None
    created: datetime | None = None
    printable_status: str = ""
    conditions: Sequence[ConditionFigure] = ()


class MachineTally(NamedTuple):
    """The numbers of VMs or VMIs that this process has created, deleted and healed for one set or pool.

    A VM is healed if it is deleted because it failed.
    """

    started: int = 0
    stopped: int = 0
    healed: int = 0


Tallies: TypeAlias = Mapping[tuple[str, str, str], MachineTally]
"""The `MachineTally` (the VM counts) of each set or pool, by kind, namespace and name."""

Held: TypeAlias = Mapping[tuple[str, str, str], frozenset[str]]
"""The reasons of held writes of each set or pool, by kind, namespace and name. Other sets and pools have no entry."""

FigureSource: TypeAlias = Callable[[], Iterable[SetFigures]]
"""A function that returns the `SetFigures` of all objects of a kind.

The function is called on the event loop, so the function must return quickly. Another thread iterates the result, so
the iteration must read only immutable values. For example, the result can be a generator over the `values()` of a
store.
"""

Number: TypeAlias = Callable[[SetFigures], float | None]
"""A function that returns the value of a gauge for one object, or None if there is no value."""


class Family(NamedTuple):
    """One metric with all its lines. The field `name` of a counter does not contain the suffix `_total`."""

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
UNAVAILABLE = "Replicas that the spec requests and that are not ready; no series if all replicas are ready."
MAX_UNAVAILABLE = "Replicas that may be unavailable at the same time; no series if all replicas are ready."
HELD = "1 while the controller holds back writes for this reason; no series otherwise."
BACK_OFF = "1 while a set waits before it replaces VMIs that fail soon after they start; no series otherwise."


def _has(figures: SetFigures, condition: str) -> bool:
    return any(each.type == condition and each.status == "True" for each in figures.conditions)


def _fails(figures: SetFigures) -> float:
    return _has(figures, REPLICA_FAILURE)


def _created(figures: SetFigures) -> float | None:
    return None if figures.created is None else int(figures.created.timestamp())


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

TALLIED_NOUNS: Mapping[str, str] = {VMS.kind: "vms", VMIS.kind: "vmis"}
"""The word in the names of counters, by the kind of the counted objects."""


class _Row(NamedTuple):
    """The metric values of one set or pool. `labels` is a text with the labels for the name and the namespace of the
    object.
    """

    labels: str
    figures: SetFigures


def render(families: Iterable[Family], *, openmetrics: bool) -> str:
    """Return the metrics as text, in the OpenMetrics format or in Prometheus' text format. Leave out metrics without
    lines.
    """
    parts = []
    for family in families:
        lines = "\n".join(family.lines)
        if lines:
            suffix = "_total" if family.type == "counter" and not openmetrics else ""
            name = f"{family.name}{suffix}"
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n{lines}\n")
    return "".join(parts)


def families_of(
    sources: Iterable[Iterable[SetFigures]], tallies: Tallies, held: Held = MappingProxyType({})
) -> Iterator[Family]:
    """Yield the metrics of all replica sets and pools. Each source yields the figures of some sets or pools."""
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
    yield from _troubles([row for rows in by_kind.values() for row in rows], held)
    for kind in KINDS:
        rows = by_kind.get(kind.kind, ())
        yield from _state(kind.metric_prefix, rows)
        if kind.tallied is not None:
            yield from _tallies(kind, kind.tallied, rows, tallies)


def _troubles(rows: Sequence[_Row], held: Held) -> Iterator[Family]:
    """Yield the gauges that have a series only for an object in a bad state."""
    taken = (f"vmherd_takeover_held{{{labels}}} 1" for labels, figures in rows if figures.takeover_held)
    yield Family("vmherd_takeover_held", "gauge", TAKEOVER_HELD, taken)
    waiting = (f"vmherd_back_off{{{labels}}} 1" for labels, figures in rows if _has(figures, REPLICA_BACK_OFF))
    yield Family("vmherd_back_off", "gauge", BACK_OFF, waiting)
    lacking = [(row, missing) for row in rows if (missing := row.figures.desired - row.figures.ready) > 0]
    lines = (f"vmherd_replicas_unavailable{{{_with_kind(row)}}} {missing}" for row, missing in lacking)
    yield Family("vmherd_replicas_unavailable", "gauge", UNAVAILABLE, lines)
    limits = (
        f"vmherd_replicas_max_unavailable{{{_with_kind(row)}}} {row.figures.max_unavailable}"
        for row, _ in lacking
        if row.figures.max_unavailable is not None
    )
    yield Family("vmherd_replicas_max_unavailable", "gauge", MAX_UNAVAILABLE, limits)
    reasons = (
        f'vmherd_held{{{_with_kind(row)},reason="{reason}"}} 1'
        for row in (rows if held else ())
        for reason in sorted(held.get((row.figures.kind, row.figures.namespace, row.figures.name), ()))
    )
    yield Family("vmherd_held", "gauge", HELD, reasons)


def _with_kind(row: _Row) -> str:
    return f'kind="{_escaped(row.figures.kind)}",{row.labels}'


def _replicas(kind: str, field: str, rows: Iterable[_Row]) -> Iterator[str]:
    start, number = f'vmherd_replicas_{field}{{kind="{_escaped(kind)}",', attrgetter(field)
    for labels, figures in rows:
        value = number(figures)
        if value is not None:
            yield f"{start}{labels}}} {value}"


def _flags(name: str, kind: str, rows: Iterable[_Row]) -> Iterator[str]:
    start = f'{name}{{kind="{_escaped(kind)}",'
    return (f"{start}{labels}}} {int(figures.rolls_out)}" for labels, figures in rows)


def _state(prefix: str, rows: Sequence[_Row]) -> Iterator[Family]:
    for name, (help_text, number) in STATE_GAUGES.items():
        yield Family(f"{prefix}_{name}", "gauge", help_text, _numbers(f"{prefix}_{name}", number, rows))
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
        # Show only the last condition of each type. The API server accepts two conditions of the same type. Prometheus
        # rejects a page that has the same series twice.
        for each in {condition.type: condition for condition in figures.conditions}.values():
            reason, status = _escaped(each.reason or ""), _escaped(each.status.lower())
            yield f'{name}{{condition="{_escaped(each.type)}",{labels},reason="{reason}",status="{status}"}} 1'


def _tallies(kind: Kind[Any], tallied: Resource[Any], rows: Sequence[_Row], tallies: Tallies) -> Iterator[Family]:
    nothing, noun = MachineTally(), TALLIED_NOUNS[tallied.kind]
    labelled = [
        (
            f'namespace="{_escaped(figures.namespace)}",{kind.name}_name="{_escaped(figures.name)}"',
            tallies.get((figures.kind, figures.namespace, figures.name), nothing),
        )
        for _, figures in rows
    ]
    texts = noun[:-1].upper() + "s"
    counters: dict[str, tuple[str, Callable[[MachineTally], int]]] = {
        f"{noun}_started": (
            f"{texts} that were created for the object since this process began to reconcile.",
            attrgetter("started"),
        ),
        f"{noun}_stopped": (f"{texts} of the object that were deleted, for any reason.", attrgetter("stopped")),
    }
    if tallied is VMS:
        healed = f"{texts} of the object that autohealing deleted in order to replace them."
        counters["auto_healing_operations"] = (healed, attrgetter("healed"))
    for field, (help_text, number) in counters.items():
        name = f"{kind.metric_prefix}_{field}"
        lines = [f"{name}_total{{{labels}}} {number(tally)}" for labels, tally in labelled]
        yield Family(name, "counter", help_text, lines)


def _escaped(text: str) -> str:
    """Return the text as the value of a label, with escape sequences. A text in a status can have any characters."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
