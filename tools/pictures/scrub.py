"""Replaces what differs from run to run: names that the API server makes, UIDs, addresses, nodes, ages.

Nothing else changes, so two runs make the same pictures. All functions of this module are pure.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from controller.config.types import seconds_in
from plugin.views.tables import table
from sandbox.demo.status import controller_of, name_of, uid_of
from sandbox.demo.tables import View

HASH: Final = "bcdfghjklmnpqrstvwxz2456789"
NODES: Final = 5
ID: Final = "00000000-0000-0000-0000-000000000000"
EVENT_GAP_S: Final = 2

UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HOLDER: Final = re.compile(rf"\S+_{UUID.pattern}")
DURATION: Final = re.compile(r"\b(since|in|renewed) ((?:\d+[dhms])+)\b")
AGE: Final = "3m"
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which the ages of Events are shown."""


def clean_objects(view: View) -> View:
    """Return the objects with fixed names, UIDs, addresses and nodes, and with Events of fixed ages."""
    vmis = sorted(view.vmis, key=lambda vmi: ((controller_of(vmi) or {}).get("kind", ""), name_of(vmi)))
    loose = [name_of(vmi) for vmi in vmis if (controller_of(vmi) or {}).get("kind") != "VirtualMachine"]
    names = {old: f"test{_hash(number)}" for number, old in enumerate(loose)}
    cleaned = [_renamed(vmi, names, place) for place, vmi in enumerate(vmis)]
    vms = [_with_uid(vm, place) for place, vm in enumerate(sorted(view.vms, key=name_of))]
    events = _aged([_with_texts(event, names) for event in view.events])
    return View(owners=view.owners, vms=tuple(vms), vmis=tuple(cleaned), events=tuple(events))


def clean_text(text: str) -> str:
    """Return the output of `why` with a fixed leader and fixed times."""
    return DURATION.sub(_rounded, HOLDER.sub(f"demo_{ID}", text))


def _rounded(found: re.Match[str]) -> str:
    """Return a time in the future as whole minutes, and a time in the past as a fixed time."""
    word, duration = found[1], found[2]
    if word != "in":
        return f"{word} {'2s' if word == 'renewed' else '10s'}"
    seconds = seconds_in(duration) or 0
    return f"in {-(-int(seconds) // 60)}m" if seconds > 60 else "in 30s"


def clean_table(text: str) -> str:
    """Return the output of `tree` with fixed nodes and ages. The columns get the width of their cells again."""
    header, *lines = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", header)]
    ends = [*starts[1:], None]
    rows = [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in (header, *lines)]
    change: Mapping[str, Callable[[int], str]] = {"AGE": lambda _: AGE, "NODE": _node}
    for column, title in enumerate(rows[0]):
        for number, row in enumerate(rows[1:]):
            if title in change and row[column]:
                row[column] = change[title](number)
    return "\n".join(table(rows[0], rows[1:])) + "\n"


def _hash(number: int) -> str:
    """Return five characters, as the name of a VMI has."""
    return "".join(HASH[(7 * number + 5 * place + 3) % len(HASH)] for place in range(5))


def _node(number: int) -> str:
    return f"node{number % NODES + 1:02}"


def _renamed(vmi: Mapping[str, Any], names: Mapping[str, str], place: int) -> dict[str, Any]:
    status = dict(vmi.get("status") or {})
    if "nodeName" in status:
        status["nodeName"] = _node(place)
    if status.get("interfaces"):
        status["interfaces"] = [{**status["interfaces"][0], "ipAddress": f"10.0.0.{place + 10}"}]
    metadata = {**vmi["metadata"], "name": names.get(name_of(vmi), name_of(vmi)), "creationTimestamp": ""}
    return {**vmi, "metadata": metadata, "status": status}


def _with_uid(vm: Mapping[str, Any], place: int) -> dict[str, Any]:
    digits = "".join(f"{(37 * place + 91 * part + 17) % 256:02x}" for part in range(4))
    return {**vm, "metadata": {**vm["metadata"], "uid": digits + uid_of(vm)[8:]}}


def _with_texts(event: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the event with the new names of VMIs in its texts."""
    text = json.dumps(event)
    for old, new in names.items():
        text = re.sub(rf"\b{old}\b", new, text)
    cleaned: dict[str, Any] = json.loads(text)
    return cleaned


def _aged(events: Iterable[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the Events in the order of their writes, each a fixed time after the one before."""
    ordered = sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
    for place, event in enumerate(reversed(ordered), start=1):
        event["lastTimestamp"] = (NOW - timedelta(seconds=EVENT_GAP_S * place)).isoformat()
    return ordered
