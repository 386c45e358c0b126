"""What the plugin foretells at a moment: the writes of `plan`, the later writes of `why`, and `scale --dry-run`."""

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from controller.runtime.actions import Check, Patch, Plan
from controller.runtime.dry_run import reported_actions
from plugin.views.scaling import preview, with_replicas
from plugin.views.upcoming import upcoming_of

_WRITE: Final = re.compile(r"in \S+: (\w+) (\w+) [^/ ]+/([^:]+): ")


class Foretold(Struct, frozen=True):
    """Something about the set or pool `owner` that the plugin says at the time `at`.

    `by` is `plan`, `why` or `scale`. `names` are the objects that are written, at `due` or at once. `new` is the number
    of new members. A plan without names writes nothing before `due`.
    """

    at: float
    owner: str
    by: str
    names: frozenset[str]
    due: float
    new: int = 0


def foretold_of(at: float, owner: str, snapshot: Any, plan: Plan) -> Iterator[Foretold]:
    """What `plan` and `why` say now."""
    notes = [each for each in plan.actions if isinstance(each, Check) or (isinstance(each, Patch) and each.is_note)]
    written = frozenset(f"{each.resource.plural}/{each.key.name}" for each in plan.actions if each not in notes)
    due = at + (plan.requeue_after_s if plan.requeue_after_s is not None else 1e9)
    yield Foretold(at, owner, "plan", written, due)
    for wait in plan.waits:
        if wait.until is not None:
            yield Foretold(
                at, owner, "why", frozenset(wait.names[:1]), at + (wait.until - snapshot.now).total_seconds()
            )
    for each in upcoming_of(snapshot):
        found = _WRITE.match(each.text)
        if found and each.seconds is not None:
            yield Foretold(at, owner, "why", frozenset({found[3]}), at + each.seconds)


def foretold_scale(at: float, owner: str, snapshot: Any, plan: Plan, replicas: int) -> Foretold | None:
    """What `scale --dry-run` says, if nothing else goes on."""
    if [*reported_actions(plan)] or plan.held:
        return None
    shown = preview(with_replicas(snapshot, replicas))
    if shown.held:
        return None
    names = frozenset(each.name for each in shown.leaving)
    return Foretold(at, owner, "scale", names, at, len(shown.creating))
