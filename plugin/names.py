"""The names that completion offers, each with a word about its state."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.errors import NotFound
from informers.resource import PartialObject, Resource
from plugin import connection
from plugin.flags import Flags
from plugin.subjects import TYPES

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
ANY_VERSION: Final = "0"
"""The resourceVersion of a list that the server answers from its cache. For completion, it need not be the newest."""


NAMESPACES: Final = Resource(
    PartialObject, group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False
)
OTHER_TYPES: Final[Mapping[str, Resource[Any]]] = {"namespaces": NAMESPACES, "vm": VMS, "vmi": VMIS}


async def read(flags: Flags, type_: str) -> list[tuple[str, str]]:
    async with connection.connect(flags) as session:
        for resource in _resources(type_):
            try:
                return [(str(row.get("Name", "")), _state_in(row)) for row in await _rows(session, resource)]
            except NotFound:
                continue
    return []


async def read_revisions(flags: Flags, owner: str) -> list[tuple[str, str]]:
    async with connection.connect(flags) as session:
        rows = await _rows(session, CONTROLLER_REVISIONS)
    own = [row for row in rows if str(row.get("Controller", "")).endswith(f"/{owner}")]
    return [(str(row.get("Revision", "")), str(row.get("Name", ""))) for row in own]


def _resources(type_: str) -> list[Resource[Any]]:
    name, _, group = type_.lower().partition(".")
    if name in OTHER_TYPES:
        return [OTHER_TYPES[name]]
    if name not in TYPES:
        return []
    kind, usual = TYPES[name]
    return [kind.resource(group or usual, version) for version in (kind.version, *kind.other_versions)]


async def _rows(session: connection.Session, resource: Resource[Any]) -> list[dict[str, Any]]:
    """Return the rows from a table of the server, which is much smaller than the objects."""
    path, params = resource.path(session.namespace), {"resourceVersion": ANY_VERSION, "includeObject": "None"}
    answer = msgspec.json.decode(await session.request("GET", path, params=params, accept=TABLE))
    columns = [each["name"] for each in answer["columnDefinitions"]]
    return [dict(zip(columns, row["cells"], strict=False)) for row in answer["rows"] or ()]


def _state_in(row: Mapping[str, Any]) -> str:
    word = str(row.get("Status") or row.get("Phase") or "")
    if "Desired" not in row:
        return word
    return f"{word} {row.get('Ready') or 0}/{row['Desired']} ready".strip()
