"""Looking on: plans are made as ever, and none is carried out. What would be done is told in logs and metrics.

A pass costs no request. The same plan is told once, at info, and counted once, as `vmherd_actions_total` with the
outcome `would`, for as long as nothing changes it. A plan shows the next step alone: what would come after it depends
on what the step would have brought. So a pool that is new would get its finalizer, and its VMs are not spoken of yet.

Since nothing is done, everything stays as it is, until somebody else changes it and the event wakes the key. What only
waits for time to pass is looked at again at a slow pace.
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
"""At most this often for a plan that asks to be made again, however soon it does so."""

LISTED: Final = 10
"""Actions that a log line names. It counts the others."""


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class DryRunReport(NamedTuple):
    """What a pass would do, in words, to compare with the pass before."""

    actions: tuple[str, ...]
    notices: tuple[str, ...]
    status: bool
    held: str

    def __bool__(self) -> bool:
        return bool(self.actions or self.notices or self.status)


class DryRunReconciler(Generic[S]):
    """A reconciler that writes nothing, for one kind. `now` is the wall clock, for times that objects carry."""

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
        self._told: dict[ObjectKey, DryRunReport] = {}
        """What was told last of each object that there is something to tell of."""

    async def reconcile(self, key: ObjectKey) -> Report:
        # AwaitChange: nothing was ever written that a cache could fail to show.
        snapshot = self._rules.take_snapshot(key, now=self._now(), settled=True)
        if snapshot is None:
            plan = self._rules.plan_absent(key)
            would = told_of(plan, status=False)
        else:
            plan = self._rules.plan(snapshot)
            status = self._rules.next_status(snapshot, ())
            patch = status_patch(snapshot.owner, status, known=self._known_status)
            would = told_of(plan, status=patch is not None)
        result = AwaitChange() if plan.requeue_after_s is None else After(max(plan.requeue_after_s, LOOK_AGAIN_S))
        return Report(result, self._news(key, plan, would))

    def _news(self, key: ObjectKey, plan: Plan, would: DryRunReport) -> dict[str, object]:
        """What is to be said of this pass; nothing where it would have done what the one before would have."""
        before = self._told.pop(key, None)
        if would:
            self._told[key] = would
        if not would or would == before:
            return {}
        for action in reported_actions(plan):
            self._instruments.acted(self._kind.name, action=label_of(type(action)), outcome="would")
        return facts_of(plan, would)


def told_of(plan: Plan, *, status: bool) -> DryRunReport:
    """A plan in words."""
    return DryRunReport(
        actions=tuple(map(_told, reported_actions(plan))),
        notices=tuple(f"{notice.reason}: {notice.message}" for notice in plan.notices),
        status=status,
        held=plan.held,
    )


def reported_actions(plan: Plan) -> tuple[Action, ...]:
    """The actions of a plan that change something for a user."""
    return tuple(action for action in plan.actions if not (isinstance(action, Patch) and action.is_note))


def facts_of(plan: Plan, would: DryRunReport) -> dict[str, object]:
    """The figures of a pass that would do something: `create_would=3`, what each would be, and what is held."""
    facts: dict[str, object] = dict(Counter(f"{label_of(type(action))}_would" for action in reported_actions(plan)))
    if would.actions:
        facts["would"] = [*would.actions[:LISTED]]
    if len(would.actions) > LISTED:
        facts["and_more"] = len(would.actions) - LISTED
    if would.notices:
        facts["would_tell"] = [*would.notices[:LISTED]]
    if would.status:
        facts["would_write_status"] = True
    if would.held:
        facts["held"] = would.held
    return facts


def forbid_writes() -> None:
    """A gate that lets no write through: what is meant to write nothing can then not do so by mistake either."""
    raise GateClosed("observing: nothing is written")


def _told(action: Action) -> str:
    return f"{label_of(type(action))} {action.resource.plural} {action.key}: {action.why}"
