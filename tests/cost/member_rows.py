"""The rows of the cost test with sets and pools: plans, statuses and views of many members in many states."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt import annotations as names
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.pool.status import outcome_notices as pool_notices
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.disruption_budget import Budgets
from controller.replicas.history import encode_history, fact, joined, last_writer, read_history
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.status import next_status as set_status
from controller.replicaset.status import outcome_notices as set_notices
from controller.runtime.actions import Done, Rejected
from controller.runtime.dry_run import dry_run_report
from informers.errors import Invalid
from informers.meta import ObjectMeta
from plugin.reading import situation_of
from plugin.ui.pages import Top, fleet_page, object_page
from plugin.views.disks import disk_lines, disk_steps
from plugin.views.forecast import forecast_lines, forecast_of
from plugin.views.history import history_lines, history_of_pool, history_of_set
from plugin.views.listing import fact_lines, list_lines, tree_lines
from plugin.views.reasons import reasons_of, why_lines
from plugin.views.scaling import preview, preview_lines, with_replicas
from plugin.views.upcoming import upcoming_of
from tests import builders
from tests import pool_builders as pools
from tests.builders import NOW, seconds_ago
from tests.cost.meter import Call
from tests.cost.rows import note, pool_with, row

HEALING: Final = {"startUpFailureThreshold": 3, "minFailingToStartDuration": "0s"}
PROACTIVE: Final = {"proactive": {}}
DISKS: Final = pools.vm_spec(disks=("data", "logs"))


def unknown(number: int) -> dict[str, str]:
    return {f"vmherd.dev/protec-{number}-{each}": "" for each in range(30)}


def steady(n: int, **more: Any) -> Any:
    owner = pools.pool(replicas=n, **more)
    return pools.snapshot(owner, pools.vms(owner, *range(n)))


def outdated(n: int, **more: Any) -> Any:
    old = pools.pool(replicas=n, **more)
    owner = pools.pool(replicas=n, generation=2, **{"spec": pools.vm_spec(image="v2"), **more})
    revisions = [pools.revision(old, number=1), pools.revision(owner, number=2)]
    return pools.snapshot(owner, pools.vms(owner, *range(n)), revisions=revisions)


def many_revisions(n: int) -> Any:
    owner = pools.pool(replicas=n, generation=n + 1)
    specs = [
        pools.pool(spec=pools.vm_spec(image=f"v{number}", size=f"{number + 1}Gi", disks=("d",))) for number in range(n)
    ]
    revisions = [pools.revision(each, number=number) for number, each in enumerate(specs)]
    machines = [pools.vm(f"web-{number}", owner=owner, revision=f"web-{number}") for number in range(n)]
    return pools.snapshot(owner, machines, revisions=revisions)


def failing(n: int, **more: Any) -> Any:
    owner = pools.pool(replicas=n, autohealing=HEALING, maxUnavailable="100%", **more)
    broken = pools.vms(owner, *range(n), ready=False, failures=5, printable="CrashLoopBackOff")
    return pools.snapshot(owner, broken)


def healed(n: int) -> Any:
    """VMs whose deletion was announced four seconds ago."""
    at = seconds_ago(4).isoformat()
    records = {number: [f"uid-web-{number}", 1, at] for number in range(n)}
    return failing(n, annotations={names.HEALED: json.dumps(records), names.MAX_UNHEALTHY: "100%"})


def unready(n: int) -> Any:
    annotations = {names.REPLACE_UNREADY_AFTER: "60", names.UNREADY: note(n)}
    owner = pools.pool(replicas=n, annotations=annotations)
    return pools.snapshot(owner, pools.vms(owner, *range(n), ready=False, ready_for_s=600))


def scale_in(n: int, **more: Any) -> Any:
    owner = pools.pool(replicas=0, **more)
    return pools.snapshot(owner, pools.vms(owner, *range(n)))


def sorted_scale_in(n: int) -> Any:
    terms = [{"key": f"zone{number}", "operator": "In", "values": ["a"]} for number in range(n)]
    policy = {"selectors": {"nodeSelectorRequirementMatcher": terms, "labelSelector": {"matchLabels": pools.LABELS}}}
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "Oldest", **policy}}}
    return scale_in(n, scaleInStrategy=strategy)


def wrong(n: int) -> Any:
    owner = pools.pool(replicas=n, annotations=unknown(-1) | unknown(-2))
    machines = [pools.vm(f"web-{number}", owner=owner, annotations=unknown(number)) for number in range(n)]
    return pools.snapshot(owner, map(without_foreign_annotations, machines))


def noted(n: int) -> Any:
    annotations = {each: note(n) for each in (names.HEALED, names.RECREATED, names.UNREADY)}
    owner = pools.pool(replicas=n, generation=2, annotations=annotations, autohealing=HEALING, updateStrategy=PROACTIVE)
    return pools.snapshot(owner, pools.vms(owner, *range(0, n, 2)))


def deleting(n: int) -> Any:
    owner = pools.pool(deleting=True, spec=DISKS, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    leaving = pools.vms(owner, *range(n), deleting=True)
    return pools.snapshot(
        owner, leaving, revisions=[pools.revision(owner, f"web-{each}", number=each) for each in range(n)]
    )


def strays(n: int) -> Any:
    owner = pools.pool()
    released = [pools.vm(f"web-{number}", labels={"other": "x"}, owner=owner) for number in range(n)]
    free = [pools.vm(f"web-{number + n}") for number in range(n)]
    return pools.snapshot(owner, [*released, *free])


def budgeted(n: int) -> Any:
    owner = pools.pool(replicas=n, annotations={names.DISRUPTION_BUDGET: "1"})
    seen = pools.snapshot(owner, pools.vms(owner, *range(n)))
    return msgspec.structs.replace(seen, budgets=Budgets(pools.POOLS, ()))


def lost(n: int) -> Any:
    owner = pools.pool(replicas=n, annotations={names.SUBSTITUTE_LOST_AFTER: "60", names.MAX_UNHEALTHY: "100%"})
    machines = pools.vms(owner, *range(n), ready=False, ready_for_s=600)
    gone = [pools.vmi(each, ready=False, reason=None, ready_for_s=600) for each in machines]
    return pools.snapshot(owner, machines, vmis=gone)


def standbys(n: int, state: str, *, wanted: int, **fields: Any) -> Any:
    """Wanted VMs, and as many standbys as members, outside the service."""
    owner = pools.pool(replicas=n, annotations={names.STANDBY: str(n)}, autohealing=HEALING)
    marks, labels = {names.STANDBY_STATE: state}, {names.IN_SERVICE: "false"}
    spec = pools.vm_spec(labels=labels, run_strategy="Halted" if state == "resting" else "Always")
    beside = pools.vms(owner, *range(wanted, wanted + n), annotations=marks, spec=spec, **fields)
    return pools.snapshot(owner, [*pools.vms(owner, *range(wanted)), *beside], vmis=() if state == "resting" else None)


def live(n: int) -> Any:
    seen = outdated(n, updateStrategy=PROACTIVE, spec=pools.vm_spec(node_selector={"a": "b"}))
    since = {each.vm.metadata.uid: NOW - timedelta(hours=1) for each in seen.members}
    return msgspec.structs.replace(seen, live=LiveUpdates(since))


POOL_STATES: Final[dict[str, Callable[[int], Any]]] = {
    "steady": steady,
    "hostile template": lambda n: pools.snapshot(
        owner := pool_with("quantities", n, replicas=n), pools.vms(owner, *range(n))
    ),
    "outdated": lambda n: outdated(n, updateStrategy=PROACTIVE, maxUnavailable="50%"),
    "recreated": lambda n: outdated(
        n, spec=DISKS, updateStrategy=PROACTIVE, annotations={names.MOST_DISRUPTIVE: "recreate"}, maxUnavailable="50%"
    ),
    "in steps": lambda n: outdated(n, updateStrategy=PROACTIVE, annotations={names.PARTITION: "90%,50%:10m,0"}),
    "rolled back": lambda n: outdated(n, updateStrategy=PROACTIVE, annotations={names.ROLLBACK: "stalled"}),
    "taken over": lambda n: outdated(n, annotations={names.TAKEOVER: "held 1 abc"}),
    "live changes": live,
    "standbys wake": lambda n: standbys(n, "resting", wanted=0, ready=False, printable="Stopped"),
    "standbys rest": lambda n: standbys(n, "preparing", wanted=n),
    "standbys fail": lambda n: standbys(
        n, "preparing", wanted=n, ready=False, failures=5, printable="CrashLoopBackOff"
    ),
    "many revisions": many_revisions,
    "failing": failing,
    "healed": healed,
    "finished": lambda n: failing(
        n, spec=pools.vm_spec(run_strategy="Once"), annotations={names.REPLACE_FINISHED: "true"}
    ),
    "unready": unready,
    "scale-in": scale_in,
    "sorted scale-in": sorted_scale_in,
    "scale-in with disks": lambda n: scale_in(
        n, spec=DISKS, scaleInStrategy={"proactive": {"statePreservation": "Offline"}}
    ),
    "drained": lambda n: scale_in(n, annotations={names.DRAIN_SECONDS: "60"}),
    "scale-out": lambda n: pools.snapshot(pools.pool(replicas=n)),
    "wrong annotations": wrong,
    "notes": noted,
    "deleted": deleting,
    "strays": strays,
    "budget": budgeted,
    "lost": lost,
}


def outcomes_of(plan: Any) -> list[Any]:
    refused = [Rejected(action, Invalid("the server says no " * 20, code=422)) for action in plan.actions[::2]]
    return [*refused, *(Done(action) for action in plan.actions[1::2])]


def decisions(seen: Any, plan_of: Any, status_of: Any, notices_of: Any) -> None:
    plan = plan_of(seen)
    dry_run_report(plan, status=True)
    outcomes = outcomes_of(plan)
    notices_of(outcomes)
    status_of(seen, outcomes)


@row(6, 300, *POOL_STATES)
def decisions_about_a_pool(n: int, state: str) -> Call:
    seen = POOL_STATES[state](n)
    return lambda: decisions(seen, plan_pool, pool_status, pool_notices)


def set_of(n: int, replicas: int, *, spec: bytes = builders.SPEC, orphans: bool = False, **more: Any) -> Any:
    fields = {key: more.pop(key) for key in ("annotations",) if key in more}
    owner = builders.replicaset(replicas=replicas, spec=spec, **fields)
    members = [builders.vmi(f"web-{number}", owner=owner, **more) for number in range(n)]
    free = range(n if orphans else 0)
    orphaned = [builders.vmi(f"free-{number}", labels=dict(builders.LABELS)) for number in free]
    return builders.snapshot(owner, [*members, *orphaned], history=builders.history(builders.revision(owner)))


def wrong_set(n: int) -> Any:
    owner = builders.replicaset(replicas=n, annotations=unknown(-1))
    members = (builders.vmi(f"web-{number}", owner=owner, annotations=unknown(number)) for number in range(n))
    return builders.snapshot(owner, map(without_foreign_annotations, members))


def many_set_revisions(n: int) -> Any:
    owner = builders.replicaset(replicas=n)
    old = [builders.replicaset(spec=msgspec.json.encode({"domain": {}, "hostname": str(each)})) for each in range(n)]
    history = builders.history(*map(builders.revision, old))
    members = [builders.vmi(f"web-{number}", owner=each) for number, each in enumerate(old)]
    return builders.snapshot(owner, members, history=history)


SURGE: Final = {names.ROLLING_UPDATE: "maxSurge=50%,maxUnavailable=0", names.ROLLBACK: "stalled"}
STALE: Final = {**builders.LABELS, names.TEMPLATE_HASH: "x"}

SET_STATES: Final[dict[str, Callable[[int], Any]]] = {
    "steady": lambda n: set_of(n, n),
    "orphans": lambda n: set_of(n, n, orphans=True),
    "scale-in": lambda n: set_of(n, 0),
    "scale-out": lambda n: set_of(0, n),
    "finished": lambda n: set_of(n, n, phase="Failed", ready=False),
    "unready": lambda n: set_of(n, n, ready=False, annotations={names.REPLACE_UNREADY_AFTER: "60"}),
    "outdated": lambda n: set_of(n, n, labels=STALE, annotations={names.ROLLING_UPDATE: "maxUnavailable=50%"}),
    "surge": lambda n: set_of(n, n, labels=STALE, annotations=SURGE),
    "drained": lambda n: set_of(n, 0, annotations={names.DRAIN_SECONDS: "60"}),
    "early failures": lambda n: set_of(n, n, phase="Failed", ready=False, age_s=30, entered_s={"Failed": 5}),
    "wrong annotations": wrong_set,
    "many revisions": many_set_revisions,
}


@row(6, 300, *SET_STATES)
def decisions_about_a_set(n: int, state: str) -> Call:
    seen = SET_STATES[state](n)
    return lambda: decisions(seen, plan_set, set_status, set_notices)


def looks(seen: Any, kind: Any) -> None:
    """What `why`, `tree`, `list`, `plan` and the pages show of an object."""
    situation = situation_of(kind, kind.group, seen)
    reasons = reasons_of(situation, None, NOW)
    why_lines(situation, reasons)
    tree_lines(situation, situation.members, NOW, width=100, most=40)
    list_lines([situation], NOW, ("app",), all_namespaces=True, wide=True, width=100)
    fleet_page("", "", [situation], Top())
    object_page(situation, reasons, (), Top())
    forecast_lines(forecast_of(seen), width=100)
    preview_lines(preview(with_replicas(seen, 1)))


@row(4, 150, "outdated", "recreated", "many revisions", "failing", "wrong annotations", "deleted")
def views_of_a_pool(n: int, state: str) -> Call:
    seen = POOL_STATES[state](n)

    def show() -> None:
        looks(seen, POOLS)
        history_lines(history_of_pool(seen, counts=True), NOW, width=100)
        disk_lines(disk_steps(seen))

    return show


@row(4, 150, "outdated", "many revisions", "wrong annotations")
def views_of_a_set(n: int, state: str) -> Call:
    seen = SET_STATES[state](n)
    revisions = seen.history.revisions if seen.history is not None else ()

    def show() -> None:
        looks(seen, REPLICA_SETS)
        history_lines(history_of_set(seen, revisions, counts=True), NOW, width=100)

    return show


@row(4, 100, "failing", "outdated")
def what_comes_later(n: int, state: str) -> Call:
    seen = POOL_STATES[state](n)
    return lambda: upcoming_of(seen)


@row(20, 600)
def histories(n: int) -> Call:
    happened = [fact(NOW + timedelta(minutes=each), f"Fact{each % 30}", "x" * 100) for each in range(n)]
    written = encode_history(joined((), happened))
    meta = ObjectMeta(annotations={names.HISTORY: written})
    field = {"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    answer = msgspec.json.encode({"metadata": {"managedFields": [field] * n}})
    return lambda: (fact_lines(read_history(meta), NOW), joined((), happened), last_writer(answer, "replicas"))
