"""The history of a run as text, for people who look at a violation."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from tests.faults.judge.history import Change, History, Request, shown
from tests.faults.judge.states import is_ready
from tests.faults.proxy.proxy import Decision

LONGEST = 1500


def chronicle(history: History, decisions: Iterable[Decision]) -> list[str]:
    """Return all changes, all requests of the controller, and all actions of the proxy, by time."""
    lines = [
        *((each.time, line_of_change(each)) for each in history.changes),
        *((each.time, line_of_request(each)) for each in history.ours),
        *(
            (each.time, f"PROXY   {each.action} {each.verb} {each.path} -> {each.code}")
            for each in decisions
            if each.rule
        ),
    ]
    return [f"{datetime.fromtimestamp(at, UTC):%H:%M:%S.%f} {text}" for at, text in sorted(lines)]


def line_of_change(change: Change) -> str:
    author = "?" if change.author is None else f"{change.author.user_agent.partition(' ')[0]} {change.author.verb}"
    return f"CHANGE  {change.revision} {change.kind}/{change.name} by {author}: {'; '.join(_facts(change))}"


def line_of_request(request: Request) -> str:
    body = shown(request.body, LONGEST) if request.is_write else ""
    return f"REQUEST {request} rv={request.revision or ''} answered={request.answered - request.time:.3f}s {body}"


def _facts(change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    if after is None:
        yield "removed"
        return
    if before is None:
        yield f"new: {shown(after, LONGEST)}"
        return
    if "deletionTimestamp" in after["metadata"] and "deletionTimestamp" not in before["metadata"]:
        yield "begins to terminate"
    if is_ready(before) != is_ready(after):
        yield "ready" if is_ready(after) else "not ready"
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if before["metadata"].get(field) != after["metadata"].get(field):
            yield f"{field}={shown(after['metadata'].get(field), LONGEST)}"
    if before.get("spec") != after.get("spec"):
        yield f"spec={shown(after.get('spec'), LONGEST)}"
    if before.get("status") != after.get("status"):
        yield f"status={shown(after.get('status'), LONGEST)}"
