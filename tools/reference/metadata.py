"""The page of all labels and annotations. Each name in the code is in the catalogue or has a text."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from controller.kubevirt import annotations as names
from controller.replicas.catalogue import CATALOGUE, OPAQUE, Annotation, Place
from tools.reference.markdown import Undescribed, code, introduction, sections, table

LABELS: Final = {
    "vmherd.dev/template-hash": ("VMIs and ControllerRevisions of a set", "the hash of the template"),
    "vmherd.dev/in-service": (
        "VMIs, and the templates of VMs",
        'a user writes "true" in the VMI template, and vmherd writes "false" on the VMI while the VM drains',
    ),
    "vmherd.dev/pool-uid": ("ControllerRevisions of a pool", "the pool that created the revision"),
    "vmherd.dev/kept-for": (
        "DataVolumes and claims",
        "the name of the pool that has kept the disk of a deleted VM; other pools do not use the disk",
    ),
    "vmherd.dev/used-for": (
        "DataVolumes and claims",
        "the pool that had kept the disk, which a VM of the pool uses again; other pools do not use the disk",
    ),
}
NOTES: Final = {"vmherd.dev/rolled-out": ("revisions", "when the template was last rolled out again")}
SOURCE: Final = Path(__file__).with_name("annotations.md.in")
HEADER: Final = ("annotation", "on", "value", "meaning", "with another value")


class Text(NamedTuple):
    """The meaning of an annotation, and an example of its value, or "" if only vmherd writes it."""

    example: str
    meaning: str


def read_texts() -> dict[str, Text]:
    texts = {}
    for heading, meaning in sections(SOURCE.read_text()):
        name, _, example = heading.partition(": ")
        texts[name] = Text(example.strip('"'), meaning)
    return texts


def page() -> str:
    """Return the page. Raises Undescribed."""
    texts = read_texts()
    listed = {each.name for each in CATALOGUE}
    described = texts.keys() | LABELS.keys() | NOTES.keys()
    if different := (described ^ known_names()) | (texts.keys() ^ listed):
        raise Undescribed(f"in only one of the code, the catalogue and the texts: {sorted(different)}")
    of_users = [each for each in CATALOGUE if each.value != OPAQUE]
    of_vms = _table(texts, [each for each in of_users if Place.VM in each.on])
    of_owners = _table(texts, [each for each in of_users if Place.VM not in each.on])
    written = [(code(name), on, f"label: {meaning}") for name, (on, meaning) in LABELS.items()]
    written += [(code(name), on, meaning) for name, (on, meaning) in NOTES.items()]
    written += [
        (code(each.name), ", ".join(each.on), texts[each.name].meaning) for each in CATALOGUE if each.value == OPAQUE
    ]
    return "\n".join(
        (
            introduction(SOURCE.read_text()),
            f"## On VMs and VMIs\n\nThese annotations change the order of a scale-in.\n\n{of_vms}",
            f"## On sets and pools\n\n{of_owners}",
            "## Written by vmherd\n\nDo not change these labels and annotations. Every value is valid.\n\n"
            + table(("name", "on", "meaning"), written),
        )
    )


def known_names() -> set[str]:
    values: Mapping[str, object] = vars(names)
    found = {value for value in values.values() if isinstance(value, str) and value.startswith(names.PREFIX)}
    return found - {names.PREFIX}


def _table(texts: Mapping[str, Text], annotations: Iterable[Annotation]) -> str:
    rows = []
    for each in annotations:
        text = texts[each.name]
        named = code(f'{each.name}: "{text.example}"')
        rows.append((named, ", ".join(each.on), each.value.form, text.meaning, each.otherwise))
    return table(HEADER, rows)
