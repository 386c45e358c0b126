"""The page of all labels and annotations. Each name in the code is in the catalogue or has a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from controller.kubevirt import annotations as names
from controller.replicas.catalogue import CATALOGUE, Annotation, Place, Writer
from tools.reference.markdown import code, generated, table
from tools.reference.texts import LABELS

PROSE = """
The API server denies wrong annotations on sets and pools, and warns about wrong annotations on VMs and VMIs, if the
policies of [the chart](../../charts/vmherd/README.md) or of `manifests/` are installed. An annotation is wrong if it is
unknown, if it is on an object where it has no effect, or if its value is not valid. vmherd works on with a wrong
annotation, and reports it: in the Event `InvalidAnnotation`, in the column PROBLEM, and in `kubectl vmherd why`.
[The sandbox](../sandbox.md) has annotations of its own, which start with `sim.vmherd.dev/`.
"""
HEADER: Final = ("annotation", "on", "value", "meaning", "with another value")


class Undescribed(ValueError):
    """The names in the code and the names with a text differ. `str()` lists the names."""


def page() -> str:
    """Return the page. Raises Undescribed."""
    described = {each.name for each in (*CATALOGUE, *LABELS)}
    if described != known_names():
        raise Undescribed(f"in only one of the code, the catalogue and the texts: {sorted(described ^ known_names())}")
    of_users = [each for each in CATALOGUE if each.writer is not Writer.CONTROLLER]
    of_vms = _table(each for each in of_users if Place.VM in each.on)
    of_owners = _table(each for each in of_users if Place.VM not in each.on)
    written = [(code(each.name), each.on, f"label: {each.meaning}") for each in LABELS]
    written += [
        (code(each.name), ", ".join(each.on), each.meaning) for each in CATALOGUE if each.writer is Writer.CONTROLLER
    ]
    return "\n".join(
        (
            generated("Labels and annotations", PROSE),
            f"## On VMs and VMIs\n\nThese annotations change the order of a scale-in.\n\n{of_vms}",
            f"## On sets and pools\n\n{of_owners}",
            "## Written by vmherd\n\nDo not change these labels and annotations. Every value is valid.\n\n"
            + table(("name", "on", "meaning"), written),
        )
    )


def known_names() -> set[str]:
    """The labels and annotations in the code, without the prefix itself."""
    values: Mapping[str, object] = vars(names)
    found = {value for value in values.values() if isinstance(value, str) and value.startswith(names.PREFIX)}
    return found - {names.PREFIX}


def _table(annotations: Iterable[Annotation]) -> str:
    return table(
        HEADER,
        [
            (code(f'{each.name}: "{each.example}"'), ", ".join(each.on), each.value.form, each.meaning, each.otherwise)
            for each in annotations
        ],
    )
