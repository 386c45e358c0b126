"""What the demo shows, drawn from what the API server answers. Pure: objects in, something to print out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

SHOWN_VMIS = 12
SHOWN_EVENTS = 6


class View(Struct, frozen=True, kw_only=True):
    """The sets, VMIs and Events of a moment, as JSON objects; or why they cannot be seen."""

    sets: tuple[dict[str, Any], ...] = ()
    vmis: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    trouble: str = ""


def draw(view: View, hints: Sequence[str]) -> RenderableType:
    """One picture of a moment."""
    if view.trouble:
        return Text(f"the API server does not answer: {view.trouble}", style="yellow")
    return Group(_sets(view), _vmis(view), _events(view), Text(), _hints(hints))


def _sets(view: View) -> Table:
    table = Table("REPLICA SET", "DESIRED", "CURRENT", "READY", "UPDATED", "CONDITIONS", expand=True)
    for owner in view.sets:
        status = owner.get("status", {})
        desired, ready = owner["spec"].get("replicas", 1), status.get("readyReplicas", 0)
        conditions = " ".join(f"{c['type']} ({c.get('reason', '')})" for c in status.get("conditions") or ())
        table.add_row(
            owner["metadata"]["name"],
            str(desired),
            str(status.get("replicas", 0)),
            Text(str(ready), style="green" if ready == desired else "yellow"),
            str(status.get("updatedReplicas", 0)),
            Text(conditions, style="red"),
        )
    return table


def _vmis(view: View) -> Table:
    table = Table("VMI", "PHASE", "READY", "NODE", "IP", expand=True)
    for vmi in sorted(view.vmis, key=lambda vmi: vmi["metadata"]["creationTimestamp"])[:SHOWN_VMIS]:
        status = vmi.get("status", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        leaving = "deletionTimestamp" in vmi["metadata"]
        addresses = [interface.get("ipAddress", "") for interface in status.get("interfaces") or ()]
        table.add_row(
            vmi["metadata"]["name"],
            "Terminating" if leaving else status.get("phase", "Pending"),
            Text("True", style="green") if ready else Text("False", style="yellow"),
            status.get("nodeName", ""),
            next(iter(addresses), ""),
        )
    if len(view.vmis) > SHOWN_VMIS:
        table.add_row(f"and {len(view.vmis) - SHOWN_VMIS} more", "", "", "", "")
    return table


def _events(view: View) -> Table:
    table = Table("EVENT", "COUNT", "MESSAGE", expand=True)
    latest = sorted(view.events, key=lambda event: event.get("lastTimestamp") or "")[-SHOWN_EVENTS:]
    for event in latest:
        style = "red" if event.get("type") == "Warning" else ""
        table.add_row(Text(event.get("reason", ""), style=style), str(event.get("count", 1)), event.get("message", ""))
    return table


def _hints(hints: Sequence[str]) -> Text:
    lines = "\n".join(f"  {hint}" for hint in hints)
    return Text(f"In another terminal:\n{lines}\nCtrl-C here takes it all down.", style="dim")
