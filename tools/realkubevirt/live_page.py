"""The page of what KubeVirt changes in a running VM, from a recording of real KubeVirt."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.live_updates import Change
from controller.kubevirt.pool_types import PoolSpec
from controller.pool.spec.template import DiskChange, Template, disk_change, machine_change, parse_template
from tools.realkubevirt.live_changes import RECORDING, SCRIPT, operations
from tools.reference.markdown import introduction, table

SOURCE: Final = Path(__file__).with_name("live-changes.md.in")
SCENES: Final = yaml.safe_load(SCRIPT.read_text())
SETTINGS: Final = {
    "default": "`LiveUpdate`, the default",
    "migrate": "`LiveUpdate`, `LiveMigrate`",
    "immovable": "the same, the VM cannot migrate",
    "evict": "`LiveUpdate`, `Evict`",
    "stage": "`Stage`",
    "stage migrate": "`Stage`, `LiveMigrate`",
}
OF_POOL: Final = {
    Change.NONE: "label",
    Change.PLACEMENT: "live",
    Change.SIZE: "live by migration",
    Change.OPEN: "verdict",
    Change.OTHER: "restart",
}


def page() -> str:
    rows = json.loads(RECORDING.read_text())
    cells = (
        [change, *(effect_of(seen[setting]) for setting in SETTINGS), _of_pool(change)] for change, seen in rows.items()
    )
    header = ("change", *SETTINGS.values(), "a pool of vmherd")
    _, _, rest = SOURCE.read_text().partition("\n## ")
    return f"{introduction(SOURCE.read_text())}\n{table(header, cells)}\n## {rest}"


def effect_of(seen: Mapping[str, Any]) -> str:
    """Return one word for what KubeVirt did, with the words of the page."""
    if "ended" in seen:
        return "eviction" if seen["ended"] == "restarted" else "stop"
    if "RestartRequired" in seen:
        return "restart" if seen["undone"] else "restart, also after a return"
    if seen.get("migration"):
        return "live migration"
    if "announced" in seen:
        return "no end"
    return "live" if "changed" in seen else "nothing"


def templates(change: str) -> tuple[Template, Template]:
    first = SCENES["first"].get(change, [])
    return _template(first), _template([*first, *SCENES["changes"][change]])


def _of_pool(change: str) -> str:
    past, current = templates(change)
    if disk_change(past, current) is not DiskChange.NONE:
        return "recreate"
    return "stop" if current.stops else OF_POOL[machine_change(past, current)]


def _template(changes: list[Any]) -> Template:
    vm: dict[str, Any] = deepcopy({"metadata": {"labels": {"app": "vm"}}, "spec": SCENES["vm"]})
    vm["spec"]["template"]["metadata"]["annotations"] = {}
    for each in operations(changes):
        place: Any = vm
        *parents, name = each["path"].split("/")[1:]
        for parent in parents:
            place = place[int(parent) if isinstance(place, list) else parent]
        if each["op"] == "remove":
            place.pop(int(name) if isinstance(place, list) else name)
        elif isinstance(place, list):
            place.append(each["value"])
        else:
            place[name] = each["value"]
    spec = msgspec.json.encode({"virtualMachineTemplate": vm})
    found = parse_template(msgspec.json.decode(spec, type=PoolSpec))
    assert not isinstance(found, FieldError), found
    return found
