"""Replaces what differs from run to run: names from the API server, UIDs, addresses, nodes, ages. It is pure."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from controller.config.types import seconds_in
from plugin.views.tables import table
from sandbox.demo.tables import Row, View

HASH: Final = "bcdfghjklmnpqrstvwxz2456789"
NODES: Final = 5
ID: Final = "00000000-0000-0000-0000-000000000000"
EVENT_GAP_S: Final = 2

UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HOLDER: Final = re.compile(rf"\S+_{UUID.pattern}")
DURATION: Final = re.compile(r"\b(since|in|renewed) ((?:\d+[dhms])+)\b")
TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
AGE: Final = "3m"


def clean_objects(view: View) -> View:
    names = {vmi.name: f"test{_hash(number)}" for number, vmi in enumerate(sorted(view.own_vmis, key=_name_of))}
    vmis = [_placed(vmi, names, place) for place, vmi in enumerate(sorted(view.vmis, key=_name_of))]
    vms = [_with_uid(vm, place) for place, vm in enumerate(sorted(view.vms, key=_name_of))]
    latest_first = sorted(view.events, key=lambda event: int(event.meta["resourceVersion"]), reverse=True)
    events = [_aged(event, names, EVENT_GAP_S * place) for place, event in enumerate(latest_first, start=1)]
    return replace(view, vms=tuple(vms), vmis=tuple(vmis), events=tuple(events))


def clean_text(text: str) -> str:
    return TIME.sub("2026-01-01T00:05:00Z", DURATION.sub(_rounded, HOLDER.sub(f"demo_{ID}", text)))


def _rounded(found: re.Match[str]) -> str:
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
    return "".join(HASH[(7 * number + 5 * place + 3) % len(HASH)] for place in range(5))


def _node(number: int) -> str:
    return f"node{number % NODES + 1:02}"


def _name_of(row: Row) -> str:
    return row.name


def _placed(vmi: Row, names: Mapping[str, str], place: int) -> Row:
    fixed = {"NodeName": _node(place), "IP": f"10.0.0.{place + 10}"}
    cells = {column: fixed.get(column, cell) if cell else "" for column, cell in vmi.cells.items()}
    return Row(cells, {**vmi.meta, "name": names.get(vmi.name, vmi.name), "creationTimestamp": ""})


def _with_uid(vm: Row, place: int) -> Row:
    digits = "".join(f"{(37 * place + 91 * part + 17) % 256:02x}" for part in range(4))
    return replace(vm, meta={**vm.meta, "uid": digits})


def _aged(event: Row, names: Mapping[str, str], age_s: int) -> Row:
    message = event.cells["Message"]
    for old, new in names.items():
        message = re.sub(rf"\b{old}\b", new, message)
    return replace(event, cells={**event.cells, "Message": message, "Last Seen": f"{age_s}s"})
