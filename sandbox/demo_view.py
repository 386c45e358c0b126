"""What the demo shows, drawn from what the API server answers. Pure: objects in, something to print out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from sandbox.demo_account import controller_of, is_leaving, is_ready, name_of, revision_of, status_of, uid_of

SET, POOL = "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"
"""The kinds whose Events are shown, and whose machines are told apart."""

MOST_EVENTS = 10
FRAME_LINES = 3
"""Of a table: its head, the line below that, and the space before the next table."""

UID_LENGTH = 8

Row: TypeAlias = Sequence[str | Text]


class View(Struct, frozen=True, kw_only=True):
    """The objects of a moment, as JSON objects; or why they cannot be seen."""

    sets: tuple[dict[str, Any], ...] = ()
    pools: tuple[dict[str, Any], ...] = ()
    vms: tuple[dict[str, Any], ...] = ()
    vmis: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    trouble: str = ""


def draw(view: View, height: int) -> RenderableType:
    """One picture of a moment, which fits a terminal of so many lines, be it with half of what there is."""
    if view.trouble:
        return Text(f"the API server does not answer: {view.trouble}", style="yellow")
    vms, vmis, events = _vms(view), _vmis(view), _events(view)
    free = height - 4 * FRAME_LINES - len(view.sets) - len(view.pools)
    rows = share(free, (len(vms), len(vmis), min(len(events), MOST_EVENTS)))
    return Group(
        _owners(view),
        Text(),
        _filled(_table("VMI", "PHASE", "READY", "NODE", "IP"), vmis, rows[1]),
        Text(),
        _filled(_table("VM", "STATUS", "READY", "REVISION", "VMI", "UID"), vms, rows[0]),
        Text(),
        _filled(_table("EVENT", "COUNT", "MESSAGE"), events[-rows[2] :], rows[2]),
    )


def share(free: int, wanted: Sequence[int]) -> list[int]:
    """Deal out lines one by one, until there are none or nobody wants more; whoever comes first has the last one."""
    given = [0] * len(wanted)
    while free > 0 and given != list(wanted):
        for index, wish in enumerate(wanted):
            if given[index] < wish and free > 0:
                given[index] += 1
                free -= 1
    return given


def _owners(view: View) -> Table:
    """Replica sets and pools, by the names that kubectl takes."""
    table = _table("SET OR POOL", "DESIRED", "CURRENT", "READY", "UPDATED", "STATUS")
    for kind, owners in (("vmirs", view.sets), ("vmpool", view.pools)):
        for owner in owners:
            table.add_row(f"{kind}/{name_of(owner)}", *_counts(owner), _standing(owner))
    return table


def _counts(owner: dict[str, Any]) -> tuple[str | Text, ...]:
    """DESIRED, CURRENT, READY and UPDATED."""
    status = status_of(owner)
    desired, ready = owner["spec"].get("replicas", 1), status.get("readyReplicas", 0)
    return (
        str(desired),
        str(status.get("replicas", 0)),
        Text(str(ready), style="green" if ready == desired else "yellow"),
        str(status.get("updatedReplicas", 0)),
    )


def _standing(owner: dict[str, Any]) -> Text:
    """A pool's status in one word, and the conditions of either."""
    status = status_of(owner)
    word = status.get("printableStatus", "")
    standing = Text(word, style="green" if word == "Running" else "yellow")
    for each in status.get("conditions") or ():
        standing.append(f" {each['type']} ({each.get('reason', '')})", style="red")
    return standing


def _vmis(view: View) -> list[Row]:
    """The VMIs that are no VM's: those of replica sets, and whatever else there is."""
    rows: list[Row] = []
    own = [vmi for vmi in view.vmis if (controller_of(vmi) or {}).get("kind") != "VirtualMachine"]
    for vmi in sorted(own, key=lambda vmi: (vmi["metadata"]["creationTimestamp"], name_of(vmi))):
        status = status_of(vmi)
        addresses = [interface.get("ipAddress", "") for interface in status.get("interfaces") or ()]
        phase = "Terminating" if is_leaving(vmi) else status.get("phase", "Pending")
        rows.append((name_of(vmi), phase, _readiness(vmi), status.get("nodeName", ""), next(iter(addresses), "")))
    return rows


def _vms(view: View) -> list[Row]:
    rows: list[Row] = []
    vmis = {name_of(vmi): vmi for vmi in view.vmis}
    for vm in sorted(view.vms, key=_by_ordinal):
        name = Text(name_of(vm)).append(" (detached)" if controller_of(vm) is None else "", style="dim")
        vmi = vmis.get(name_of(vm))
        phase = status_of(vmi).get("phase", "Pending") if vmi is not None else ""
        rows.append((name, _word(vm), _readiness(vm), _revision(vm, vmi), phase, uid_of(vm)[:UID_LENGTH]))
    return rows


def _by_ordinal(vm: dict[str, Any]) -> tuple[str, int]:
    """A pool's VMs in the order of their numbers: -10 comes after -9."""
    stem, _, ordinal = name_of(vm).rpartition("-")
    return (stem, int(ordinal)) if ordinal.isdecimal() else (name_of(vm), 0)


def _word(vm: dict[str, Any]) -> Text:
    word = "Terminating" if is_leaving(vm) else status_of(vm).get("printableStatus", "")
    return Text(word, style="" if word == "Running" else "yellow")


def _revision(vm: dict[str, Any], vmi: dict[str, Any] | None) -> Text:
    """The VM's, and its VMI's where that is still another."""
    behind = f" (VMI: {revision_of(vmi)})" if vmi is not None and revision_of(vmi) != revision_of(vm) else ""
    return Text(revision_of(vm)).append(behind, style="yellow")


def _readiness(subject: dict[str, Any]) -> Text:
    return Text("True", style="green") if is_ready(subject) else Text("False", style="yellow")


def _events(view: View) -> list[Row]:
    """The Events of sets and pools, the latest last."""
    ours = [event for event in view.events if event["involvedObject"].get("kind") in (SET, POOL)]
    return [
        (
            Text(event.get("reason", ""), style="red" if event.get("type") == "Warning" else ""),
            str(event.get("count", 1)),
            Text(event.get("message", "")),
        )
        for event in sorted(ours, key=lambda event: event.get("lastTimestamp") or "")
    ]


def _table(*headers: str) -> Table:
    """A table whose rows take one line each, however narrow the terminal is."""
    columns = [Column(header, no_wrap=True) for header in headers]
    columns[-1].ratio = 1
    return Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, expand=True, pad_edge=False)


def _filled(table: Table, rows: Sequence[Row], most: int) -> Table:
    """At most so many rows; where there are more, the last one says how many."""
    shown = rows if len(rows) <= most else rows[: max(most - 1, 0)]
    for row in shown:
        table.add_row(*row)
    if len(shown) < len(rows) and most:
        table.add_row(f"and {len(rows) - len(shown)} more")
    return table
