"""The dry run: the controller makes plans as usual, and logs and metrics report them, but sends no request for them.

A plan that differs from the previous plan of its object is logged once, at level info, and its actions are counted once
in `vmherd_actions_total`, with the outcome `would`. It contains only the next step: for a new pool, the patch with the
finalizer, and not the VMs. The next look at an object comes after a change, or after the delay that the plan requests,
at least `LOOK_AGAIN_S` seconds.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple

from controller.kinds import Kind
from controller.runtime.actions import (
    Action,
    Check,
    Create,
    ExpandClaim,
    Patch,
    Pause,
    Plan,
    RemoveOwnerReference,
    ThreeWayMerge,
    label_of,
)
from controller.runtime.execute.executor import ActionInstruments
from controller.runtime.reconciler import Rules, S, is_large_object, prepare
from controller.runtime.result import LISTED, After, AwaitChange, Report
from controller.runtime.status import status_patch
from controller.runtime.workers.side_thread import SideThread
from informers.errors import GateClosed
from informers.meta import ObjectKey

_VERBS: Final[Mapping[type, str]] = {ThreeWayMerge: "update", RemoveOwnerReference: "keep", ExpandClaim: "expand"}
"""The verbs of actions whose names are not words of users."""

LOOK_AGAIN_S: Final = 60.0


class DryRunReport(NamedTuple):
    """A plan as text. `status` is true if the status would be written. `held` is why writes are left out, or ""."""

    actions: tuple[str, ...]
    notices: tuple[str, ...]
    status: bool
    held: str

    def __bool__(self) -> bool:
        return bool(self.actions or self.notices or self.status)


class DryRunReconciler(Generic[S]):
    """The reconciler of one kind in a dry run. It writes nothing. `now` is the wall clock, for times in objects."""

    def __init__(
        self,
        kind: Kind[Any],
        rules: Rules[S],
        *,
        now: Callable[[], datetime],
        instruments: ActionInstruments,
        known_status: Container[str] | None = None,
    ) -> None:
        self._kind = kind
        self._rules = rules
        self._known_status = known_status
        self._now = now
        self._instruments = instruments
        self._thread = SideThread()
        self._reported: dict[ObjectKey, DryRunReport] = {}
        """The last report of each object. An object whose last report is empty has no entry."""

    async def reconcile(self, key: ObjectKey) -> Report:
        # A dry run never writes, so the cache always shows all of its writes. So `settled` is true.
        await prepare(self._rules, key, now=self._now())
        snapshot = self._rules.take_snapshot(key, now=self._now(), settled=True)
        if snapshot is None:
            plan = self._rules.plan_absent(key)
            report = dry_run_report(plan, status=False)
        else:
            large = is_large_object(snapshot)
            plan = await self._thread.call(self._rules.plan, snapshot, large=large)
            status = await self._thread.call(self._rules.next_status, snapshot, (), plan.waits, large=large)
            patch = status_patch(snapshot.owner, status, known=self._known_status)
            report = dry_run_report(plan, status=patch is not None)
        result = AwaitChange() if plan.requeue_after_s is None else After(max(plan.requeue_after_s, LOOK_AGAIN_S))
        return Report(result, self._new_facts(key, plan, report))

    def _new_facts(self, key: ObjectKey, plan: Plan, report: DryRunReport) -> dict[str, object]:
        before = self._reported.pop(key, None)
        if report:
            self._reported[key] = report
        if not report or report == before:
            return {}
        for action in reported_actions(plan):
            self._instruments.acted(self._kind.name, action=label_of(type(action)), outcome="would")
        return facts_of(plan, report)


def dry_run_report(plan: Plan, *, status: bool) -> DryRunReport:
    return DryRunReport(
        actions=tuple(map(action_text, reported_actions(plan))),
        notices=tuple(f"{notice.reason}: {notice.message}" for notice in plan.notices),
        status=status,
        held=plan.held,
    )


def reported_actions(plan: Plan) -> tuple[Action, ...]:
    """Return the writes of a plan, without those that only store data for later reconciliations (`is_note`)."""
    writes = (action for action in plan.actions if not isinstance(action, Check))
    return tuple(action for action in writes if not (isinstance(action, Create | Patch) and action.is_note))


def facts_of(plan: Plan, report: DryRunReport) -> dict[str, object]:
    """Return the facts for the log: the actions by type (`create_would=3`), the first, notices, waits, status."""
    facts: dict[str, object] = dict(Counter(f"{label_of(type(action))}_would" for action in reported_actions(plan)))
    if report.actions:
        facts["would"] = [*report.actions[:LISTED]]
    if len(report.actions) > LISTED:
        facts["and_more"] = len(report.actions) - LISTED
    if report.notices:
        facts["would_report"] = [*report.notices[:LISTED]]
    if report.status:
        facts["would_write_status"] = True
    if report.held:
        facts["held"] = report.held
    return facts


def forbid_writes() -> None:
    """Raise GateClosed: the client calls this before each write, so a dry run cannot write by mistake."""
    raise GateClosed("dry run: writes are not allowed")


def action_text(action: Action) -> str:
    verb = action.subresource if isinstance(action, Pause) else _VERBS.get(type(action)) or label_of(type(action))
    return f"{verb} {action.resource.plural} {action.key}: {action.why}"
