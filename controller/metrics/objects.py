"""Writes the metrics of single replica sets and pools, as kube-state-metrics does for ReplicaSets and StatefulSets.

A field that an object lacks has no series. All functions read immutable values, so any thread may call them. With ten
thousand objects, the page has two hundred thousand lines. So the labels of each object are formatted only once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kinds import KINDS, Kind
from controller.kubevirt.annotations import is_takeover_held
from controller.kubevirt.resources import VMIS, VMS
from controller.replicas.conditions import REPLICA_BACK_OFF, REPLICA_FAILURE, STALLED
from informers.meta import ObjectKey
from informers.resource import Resource


class SetFigures(Struct, frozen=True, gc=False):
    """The values of one replica set or pool. `max_unavailable` is None without a limit, or if all are ready."""

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
    conditions: Sequence[Condition] = ()


class MachineTally(NamedTuple):
    """The numbers of VMs or VMIs that this process has created, deleted and, because they failed, healed."""

    started: int = 0
    stopped: int = 0
    healed: int = 0


Tallies: TypeAlias = Mapping[tuple[str, str, str], MachineTally]
"""The `MachineTally` (the VM counts) of each set or pool, by kind, namespace and name."""

Held: TypeAlias = Mapping[tuple[str, str, str], frozenset[str]]
"""The reasons of held writes of each set or pool, by kind, namespace and name. Other sets and pools have no entry."""

Marked: TypeAlias = Mapping[tuple[str, str, str], Mapping[str, int]]
"""The numbers of marked members of each set or pool, by kind, namespace and name, as its last reconciliation saw them.
The name of a number is the end of its metric.
"""

FigureSource: TypeAlias = Callable[[], Iterable[SetFigures]]
"""Returns the `SetFigures` of all objects of a kind, quickly: it is called on the event loop.

Another thread iterates the result, so this may read only immutable values.
"""

Number: TypeAlias = Callable[[SetFigures], float | None]
Labelled: TypeAlias = tuple[str, SetFigures]


class Family(NamedTuple):
    """One metric with all its lines. The field `name` of a counter does not contain the suffix `_total`."""

    name: str
    type: str
    help: str
    lines: Iterable[str]


def _is_true(condition: str, reason: str = "") -> Number:
    """Return a function whose value is 1 if the status has this condition, with this reason, and 0 otherwise."""
    return lambda figures: any(
        each.type == condition and each.status == "True" and reason in ("", each.reason) for each in figures.conditions
    )


def _only_if(number: Number) -> Number:
    return lambda figures: number(figures) or None


def _created(figures: SetFigures) -> float | None:
    return None if figures.created is None else int(figures.created.timestamp())


COMMON_GAUGES: Mapping[str, tuple[str, Number]] = {
    "replicas_desired": ("Replicas that the spec requests; 1 if the spec has no number.", attrgetter("desired")),
    "replicas_current": ("Replicas that exist, from the status.", attrgetter("current")),
    "replicas_ready": ("Replicas that are ready, from the status.", attrgetter("ready")),
    "replicas_updated": ("Replicas with the current template, from the status.", attrgetter("updated")),
    "rolls_out": (
        "1 if every outdated replica is replaced automatically, 0 if outdated replicas may stay.",
        attrgetter("rolls_out"),
    ),
    "replicas_unavailable": (
        "Replicas that the spec requests and that are not ready; no series if all replicas are ready.",
        lambda figures: max(figures.desired - figures.ready, 0) or None,
    ),
    "replicas_max_unavailable": (
        "Replicas that may be unavailable at the same time; no series if all replicas are ready.",
        attrgetter("max_unavailable"),
    ),
    "spec_invalid": (
        "1 while the spec is invalid, so nothing is created or deleted; no series otherwise.",
        _only_if(_is_true(STALLED, INVALID_SPEC)),
    ),
}
TROUBLE_GAUGES: Mapping[str, tuple[str, Number]] = {
    "takeover_held": (
        "1 while the first update of a pool from KubeVirt waits for permission; no series otherwise.",
        _only_if(attrgetter("takeover_held")),
    ),
    "back_off": (
        "1 while a set waits before it replaces VMIs that fail soon after they start; no series otherwise.",
        _only_if(_is_true(REPLICA_BACK_OFF)),
    ),
}
"""The gauges that have a series only for an object in a bad state. Only one kind can be in this state."""

MARKED: Mapping[str, str] = {
    "busy": "Replicas that are busy, as their marks say; no series before the first reconciliation.",
    "claimed": "VMs of a pool that users have claimed, beside its replicas; no series before the first reconciliation.",
    "standby": "VMs of a pool on standby, beside its replicas; no series before the first reconciliation.",
}

HELD = "1 while the controller holds back writes for this reason; no series otherwise."

STATE_GAUGES: Mapping[str, tuple[str, Number]] = {
    "paused": ("1 while spec.paused is true.", attrgetter("paused")),
    "replica_failure": ("1 while the condition ReplicaFailure is true.", _is_true(REPLICA_FAILURE)),
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


def render(families: Iterable[Family], *, openmetrics: bool) -> str:
    """Return the metrics in the OpenMetrics format or in Prometheus' text format. Leave out those without lines."""
    parts = []
    for family in families:
        lines = "\n".join(family.lines)
        if lines:
            suffix = "_total" if family.type == "counter" and not openmetrics else ""
            name = f"{family.name}{suffix}"
            parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n{lines}\n")
    return "".join(parts)


def families_of(
    sources: Iterable[Iterable[SetFigures]],
    tallies: Tallies,
    held: Held = MappingProxyType({}),
    marked: Marked = MappingProxyType({}),
) -> Iterator[Family]:
    """Yield the metrics of all replica sets and pools. Each source yields the figures of some sets or pools."""
    by_kind: dict[str, list[Labelled]] = {}
    for source in sources:
        for figures in source:
            labels = f'name="{_escaped(figures.name)}",namespace="{_escaped(figures.namespace)}"'
            by_kind.setdefault(figures.kind, []).append((labels, figures))
    every = [row for rows in by_kind.values() for row in rows]
    with_kind = [(f'kind="{_escaped(figures.kind)}",{labels}', figures) for labels, figures in every]
    yield from _gauges("vmherd", COMMON_GAUGES, with_kind)
    yield from _gauges("vmherd", TROUBLE_GAUGES, every)
    for name, text in MARKED.items():
        yield Family(f"vmherd_replicas_{name}", "gauge", text, _marked(name, with_kind if marked else (), marked))
    reasons = (
        f'vmherd_held{{{labels},reason="{reason}"}} 1'
        for labels, figures in (with_kind if held else ())
        for reason in sorted(held.get((figures.kind, figures.namespace, figures.name), ()))
    )
    yield Family("vmherd_held", "gauge", HELD, reasons)
    for kind in KINDS:
        labelled = by_kind.get(kind.kind, ())
        yield from _gauges(kind.metric_prefix, STATE_GAUGES, labelled)
        yield from _state(kind.metric_prefix, labelled)
        if kind.tallied is not None:
            yield from _tallies(kind, kind.tallied, labelled, tallies)


def _marked(name: str, rows: Iterable[Labelled], marked: Marked) -> Iterator[str]:
    for labels, figures in rows:
        number = marked.get((figures.kind, figures.namespace, figures.name), {}).get(name)
        if number is not None:
            yield f"vmherd_replicas_{name}{{{labels}}} {number}"


def _gauges(prefix: str, gauges: Mapping[str, tuple[str, Number]], labelled: Sequence[Labelled]) -> Iterator[Family]:
    for name, (help_text, number) in gauges.items():
        yield Family(f"{prefix}_{name}", "gauge", help_text, _numbers(f"{prefix}_{name}", number, labelled))


def _state(prefix: str, rows: Sequence[Labelled]) -> Iterator[Family]:
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


def _numbers(name: str, number: Number, rows: Iterable[Labelled]) -> Iterator[str]:
    for labels, figures in rows:
        value = number(figures)
        if value is not None:
            yield f"{name}{{{labels}}} {int(value)}"


def _conditions(name: str, rows: Iterable[Labelled]) -> Iterator[str]:
    for labels, figures in rows:
        # Show only the last condition of each type. The API server accepts two conditions of the same type. Prometheus
        # rejects a page that has the same series twice.
        for each in {condition.type: condition for condition in figures.conditions}.values():
            reason, status = _escaped(each.reason or ""), _escaped(each.status.lower())
            yield f'{name}{{condition="{_escaped(each.type)}",{labels},reason="{reason}",status="{status}"}} 1'


def _tallies(kind: Kind[Any], tallied: Resource[Any], rows: Sequence[Labelled], tallies: Tallies) -> Iterator[Family]:
    nothing, noun = MachineTally(), TALLIED_NOUNS[tallied.kind]
    labelled = [
        (labels, tallies.get((figures.kind, figures.namespace, figures.name), nothing)) for labels, figures in rows
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


class Figures:
    """The values of each object of a kind. `parse` is `Rules.parse_intent`, called only after a change, for speed."""

    def __init__(self, kind: str, group: str, parse: Callable[[Any], Any | FieldError]) -> None:
        self._kind = kind
        self._group = group
        self._parse = parse
        self._parsed: dict[ObjectKey, tuple[object, bool, int | None]] = {}
        """For each object of the last page: what was parsed, and the two results that the page shows."""

    def read(self, owners: Iterable[Any]) -> Iterator[SetFigures]:
        """The sets and pools are immutable, so any thread may iterate the result, but only one thread at a time."""
        before, self._parsed = self._parsed, {}
        for owner in owners:
            meta, spec, status = owner.metadata, owner.spec, owner.status
            parsed = before.get(meta.key)
            if parsed is None or parsed[0] != (spec, meta.annotations):
                intent = self._parse(owner)
                shown = (False, None) if isinstance(intent, FieldError) else (intent.rolls_out, intent.most_unavailable)
                parsed = ((spec, meta.annotations), *shown)
            self._parsed[meta.key] = parsed
            _, rolls_out, most_unavailable = parsed
            desired, ready = 1 if spec.replicas is None else spec.replicas, (status and status.ready_replicas) or 0
            yield SetFigures(
                kind=self._kind,
                group=self._group,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                created=meta.creation_timestamp,
                generation=meta.generation,
                desired=desired,
                paused=bool(spec.paused),
                rolls_out=rolls_out,
                takeover_held=is_takeover_held(meta),
                current=(status and status.replicas) or 0,
                ready=ready,
                max_unavailable=most_unavailable if ready < desired else None,
                updated=status.updated_replicas if status else None,
                observed_generation=status.observed_generation if status else None,
                conditions=(status and status.conditions) or (),
                # The status of another kind may have no printableStatus.
                printable_status=getattr(status, "printable_status", None) or "",
            )
