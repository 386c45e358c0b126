"""Whether all views of a set or pool name the same counts and the same cause: status, `why`, page and metrics."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import unescape
from typing import Any, Final

from controller.kinds import Kind
from controller.metrics.objects import Figures, families_of, render
from controller.runtime.status import status_patch
from plugin.ui.pages import Top, fleet_page, object_page
from plugin.views.listing import tree_lines
from plugin.views.reasons import Reason
from plugin.views.situation import Situation
from plugin.views.upcoming import upcoming_of

_GAUGE = re.compile(r"^vmherd_replicas_(desired|current|ready|updated)\{.*\} (\d+)$", re.MULTILINE)
NO_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The ages in the tree are not compared."""

_WORD = re.compile(r'_printable_status\{.*status="(\w+)"\} 1$', re.MULTILINE)


def disagreement(kind: Kind[Any], rules: Any, snapshot: Any, situation: Situation, reasons: Sequence[Reason]) -> str:
    """Return how two views differ, or "". A status that the controller is about to write again is not compared."""
    owner = snapshot.owner
    status = owner.status
    if status is None or status_patch(owner, rules.next_status(snapshot, (), rules.plan(snapshot).waits)) is not None:
        return ""
    figures = Figures(kind.kind, "", rules.parse_intent).read([owner])
    page = render(families_of([figures], {}), openmetrics=False)
    gauges = {name: int(number) for name, number in _GAUGE.findall(page)}
    for name, told, why in (
        ("current", status.replicas, situation.total),
        ("ready", status.ready_replicas, situation.ready),
        ("updated", status.updated_replicas, situation.updated),
    ):
        if not gauges.get(name) == (told or 0) == why:
            return f"{name}: the gauge has {gauges.get(name)}, the status {told}, and `why` {why}"
    words = [*_WORD.findall(page), status.printable_status, situation.status]
    if len(set(words)) > 1:
        return f"the metrics, the status and `why` have different words: {', '.join(map(str, words))}"
    foretold = [each.text for each in upcoming_of(snapshot)] if situation.stall is not None else []
    if any(text.startswith("Stalled") for text in foretold):
        return f"it is stalled, and `why` foretells {foretold}"
    return _different_cause(status.problem or "", situation, reasons)


def subject_of(problem: str) -> str:
    """What a problem is about: the name of a member, or the whole sentence."""
    return problem.partition("; ")[0].partition(": ")[0]


def _different_cause(problem: str, situation: Situation, reasons: Sequence[Reason]) -> str:
    shown = [each.text for each in reasons]
    is_short = any(" more VM" in text for text in shown)  # `why` names a few of many
    if problem and not is_short and not any(subject_of(problem) in text for text in shown):
        return f"the status says {problem!r}, and `why` says {shown}"
    if subject_of(problem) != subject_of(situation.problem):
        return f"the status says {problem!r}, and the list says {situation.problem!r}"
    tree = "\n".join(tree_lines(situation, situation.members, NO_TIME))
    if subject_of(problem) not in tree:
        return f"the status says {problem!r}, and the tree says {tree!r}"
    one = unescape(object_page(situation, reasons, (), Top()))
    every = unescape(fleet_page("/", "", [situation], Top()))
    missing = [each.text for each in reasons if each.text not in one]
    if missing or situation.problem not in every or f"{situation.ready}/{situation.wanted}" not in every:
        return f"the page does not show {missing or problem!r}"
    return ""
