"""Dry run: plans are made as usual, but not carried out. Logs and metrics report the actions that would be done.

A pass sends no request. As long as the plan of an object does not change, the plan is logged once, at level info, and
its actions are counted once, in `vmherd_actions_total` with the outcome `would`. A plan contains only the next step,
because later steps depend on the result of that step. For a new pool, the report contains the finalizer of the pool,
but not its VMs.

A dry run changes nothing, so an object stays as it is until another writer changes it. The event of that change starts
the next pass. A plan that only waits for time to pass is made again at a slow rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, Protocol

from controller.kinds import Kind
from controller.runtime.plan import Action, Patch, Plan, label_of
from controller.runtime.reconciler import Rules, S
from controller.runtime.result import After, AwaitChange, Report
from controller.runtime.status import status_patch
from informers.errors import GateClosed
from informers.meta import ObjectKey

LOOK_AGAIN_S: Final = 60.0
"""The shortest delay, in seconds, before a plan that requests a requeue is made again."""

LISTED: Final = 10
"""The most actions that a log line lists. Further actions are only counted."""


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class DryRunReport(NamedTuple):
    """The actions of a pass as text, to compare them with those of the pass before."""

    actions: tuple[str, ...]
    notices: tuple[str, ...]
    status: bool
    held: str

    def __bool__(self) -> bool:
        return bool(self.actions or self.notices or self.status)


class DryRunReconciler(Generic[S]):
    """A reconciler for one kind that writes nothing. `now` is the wall clock, to compare with timestamps in objects."""

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
        self._reported: dict[ObjectKey, DryRunReport] = {}
        """The last report of each object that has something to report."""

    async def reconcile(self, key: ObjectKey) -> Report:
        # A dry run never writes, so the cache shows all of our own writes: `settled` is always true.
        snapshot = self._rules.take_snapshot(key, now=self._now(), settled=True)
        if snapshot is None:
            plan = self._rules.plan_absent(key)
            report = dry_run_report(plan, status=False)
        else:
            plan = self._rules.plan(snapshot)
            status = self._rules.next_status(snapshot, ())
            patch = status_patch(snapshot.owner, status, known=self._known_status)
            report = dry_run_report(plan, status=patch is not None)
        result = AwaitChange() if plan.requeue_after_s is None else After(max(plan.requeue_after_s, LOOK_AGAIN_S))
        return Report(result, self._new_facts(key, plan, report))

    def _new_facts(self, key: ObjectKey, plan: Plan, report: DryRunReport) -> dict[str, object]:
        """The facts of this pass for the log; empty if the report is empty or the same as that of the pass before."""
        before = self._reported.pop(key, None)
        if report:
            self._reported[key] = report
        if not report or report == before:
            return {}
        for action in reported_actions(plan):
            self._instruments.acted(self._kind.name, action=label_of(type(action)), outcome="would")
        return facts_of(plan, report)


def dry_run_report(plan: Plan, *, status: bool) -> DryRunReport:
    """The report of a plan. `status` is true if the status would be written."""
    return DryRunReport(
        actions=tuple(map(_action_text, reported_actions(plan))),
        notices=tuple(f"{notice.reason}: {notice.message}" for notice in plan.notices),
        status=status,
        held=plan.held,
    )


def reported_actions(plan: Plan) -> tuple[Action, ...]:
    """The actions of a plan that change something for a user: all except notes."""
    return tuple(action for action in plan.actions if not (isinstance(action, Patch) and action.is_note))


def facts_of(plan: Plan, report: DryRunReport) -> dict[str, object]:
    """The facts for the log line of a pass: the number of actions by type (`create_would=3`), the first actions and
    notices, and the reason why something is held.
    """
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
    """A gate that rejects every write. It ensures that a dry run does not write by mistake."""
    raise GateClosed("dry run: writes are not allowed")


def _action_text(action: Action) -> str:
    return f"{label_of(type(action))} {action.resource.plural} {action.key}: {action.why}"
