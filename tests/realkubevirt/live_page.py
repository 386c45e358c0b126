"""The page of what KubeVirt changes in a running VM, from a recording of real KubeVirt."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.realkubevirt.live_changes import RECORDING
from tools.reference.markdown import introduction, table

SOURCE: Final = Path(__file__).with_name("live-changes.md.in")
SETTINGS: Final = {
    "default": "`LiveUpdate`, the default",
    "migrate": "`LiveUpdate`, `LiveMigrate`",
    "immovable": "the same, the VM cannot migrate",
    "evict": "`LiveUpdate`, `Evict`",
    "stage": "`Stage`",
    "stage migrate": "`Stage`, `LiveMigrate`",
}
"""The header of the column of each setting of the recording."""


def page() -> str:
    rows = json.loads(RECORDING.read_text())
    cells = ([change, *(effect_of(seen[setting]) for setting in SETTINGS)] for change, seen in rows.items())
    _, _, rest = SOURCE.read_text().partition("\n## ")
    return f"{introduction(SOURCE.read_text())}\n{table(('change', *SETTINGS.values()), cells)}\n## {rest}"


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
