"""A metrics page with every metric of the program, for tests that list or query its series."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from controller.apimachinery.conditions import Condition
from controller.kinds import KINDS
from controller.kubevirt.pool_types import POOL_KIND as POOL
from controller.kubevirt.resources import VMS
from controller.metrics.objects import SetFigures
from controller.metrics.registry import Metrics
from controller.runtime.actions import Cause, Delete, Done, Notice
from informers.meta import ObjectKey
from tests.builders import NOW

VMIS = "virtualmachineinstances.kubevirt.io"


class HangingQueue:
    """A work queue whose worker started a key at the time 90 and has not finished the key."""

    name = "replicaset"

    def unfinished_s(self, now: float) -> float:
        return now - 90

    def longest_s(self, now: float) -> float:
        return now - 90


class UsedSlots:
    """All slots for writes are in use, and a write waits."""

    size = running = 50
    waiting = 1

    def waited_s(self) -> float:
        return 2.5


def talkative(kind: str) -> SetFigures:
    """The metric values of an object, with a value in every field."""
    return SetFigures(
        kind=kind,
        group="example.org",
        namespace="n",
        name="a",
        uid="u",
        desired=2,
        max_unavailable=1,
        current=1,
        ready=1,
        updated=1,
        paused=True,
        takeover_held=kind == POOL,
        generation=1,
        observed_generation=1,
        created=NOW,
        printable_status="Paused",
        conditions=(
            Condition(type="ReplicaPaused", status="True", reason="Paused"),
            Condition(type="ReplicaBackOff", status="True", reason="CrashLoopBackOff"),
            Condition(type="Stalled", status="True", reason="InvalidSpec"),
        ),
    )


def exercise(metrics: Metrics, *, figures: Callable[[], Iterable[SetFigures]] = tuple) -> None:
    metrics.show_queue(HangingQueue())
    metrics.show_unsettled("replicaset", lambda: 3.0)
    metrics.show_replicas(figures)
    for controller in ("replicaset", "pool"):
        metrics.workers(controller, most=10)
    metrics.worker_busy("replicaset", change=1)
    metrics.reconciled("replicaset", result="error", seconds=0.2)
    metrics.panicked("replicaset")
    metrics.acted("replicaset", action="create", outcome="already_there")
    gone = Done(Delete(resource=VMS, key=ObjectKey("n", "a-0"), uid="u", why="it failed", cause=Cause.HEALING))
    metrics.carried_out("pool", "VirtualMachinePool", ObjectKey("n", "a"), [gone])
    metrics.became_ready("VirtualMachinePool", after_s=40)
    metrics.planned(
        "VirtualMachinePool",
        ObjectKey("n", "a"),
        [Notice(reason="HealingHeld", message="why")],
        {"busy": 2, "claimed": 1, "standby": 1},
    )
    metrics.show_writes(UsedSlots())
    metrics.stale_pass("replicaset")
    metrics.gave_up("replicaset")
    metrics.request_finished(verb="GET", host="api:6443", code="200", seconds=0.003)
    metrics.request_finished(verb="POST", host="api:6443", code="<error>", seconds=30)
    metrics.request_retried(verb="POST", host="api:6443", code="429")
    metrics.depth("replicaset", 4)
    metrics.added("replicaset")
    metrics.retried("replicaset")
    metrics.started("replicaset", waited_s=0.01)
    metrics.finished("replicaset", worked_s=0.2)
    metrics.listed(VMIS, reason="start")
    metrics.watch_started(VMIS)
    metrics.watch_ended(VMIS, reason="ConnectionLost")
    metrics.progress(VMIS)
    metrics.decode_failed(VMIS)
    metrics.handler_failed(VMIS)
    metrics.store_size(VMIS, 12)
    metrics.event_dropped("spam")
    metrics.leading("vmherd", master=True)
    metrics.loop_lagged(0.03)


def samples_of(metrics: Metrics) -> list[Sample]:
    """All samples of the page."""
    text = metrics.page().render()[0].decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


class Exported(NamedTuple):
    """The type and the labels of a metric. `samples` are the names of its series."""

    type: str
    labels: Sequence[str]
    samples: Sequence[str]


@cache
def exported() -> Mapping[str, Exported]:
    """Every metric that the program exports, by name. The name of a counter ends with `_total`."""
    metrics = Metrics(CollectorRegistry())
    exercise(metrics, figures=lambda: tuple(talkative(kind.kind) for kind in KINDS))
    found = {}
    for family in text_string_to_metric_families(metrics.page().render()[0].decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        found[name] = Exported(family.type, labels, sorted({sample.name for sample in family.samples}))
    return found
