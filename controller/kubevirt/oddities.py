"""What a manifest says that has no effect, or another one than its author expects, and that no server refuses.

The CRDs keep unknown fields, so a misspelled field is stored and never read. `field_names.json` has the fields of a
`virtualMachineTemplate` in KubeVirt v1.9. A list has the fields of its elements. A newer KubeVirt may have more.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Final

import msgspec

from controller.kubevirt.annotations import PARTITION

NAMES: Final = msgspec.json.decode(files(__package__).joinpath("field_names.json").read_bytes())
LEGACY: Final = ("volumeName", "registryDisk")
"""Fields of old templates, which vmherd understands (R13)."""

NO_FIELD: Final = "is no field of KubeVirt 1.9, so it may have no effect"

POOL_TEMPLATE, SET_TEMPLATE = "virtualMachineTemplate", "template"


def oddities_in(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a text for each oddity of a set or pool. The manifest is decoded JSON of any shape."""
    spec = _fields(manifest.get("spec"))
    vmi_names = NAMES["spec"]["template"]
    machine = _fields(_fields(spec.get(POOL_TEMPLATE)).get("spec"))
    vmi_spec = _fields(_fields((machine if POOL_TEMPLATE in spec else spec).get("template")).get("spec"))
    return (
        *_unknown(spec.get(POOL_TEMPLATE), NAMES, f"spec.{POOL_TEMPLATE}"),
        *_unknown(spec.get(SET_TEMPLATE), vmi_names, f"spec.{SET_TEMPLATE}"),
        *_volumes(vmi_spec),
        *_partition(manifest, spec.get("replicas", 1)),
    )


def _fields(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _unknown(value: object, names: Any, path: str) -> Iterator[str]:
    names = names[0] if isinstance(names, list) else names
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _unknown(each, names, f"{path}[{number}]")
    elif isinstance(value, Mapping) and names:
        for name, inner in value.items():
            if name in names:
                yield from _unknown(inner, names[name], f"{path}.{name}")
            elif name not in LEGACY:
                close = get_close_matches(str(name), names, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                yield f"{path}.{name} {NO_FIELD}{hint}"


def _volumes(vmi_spec: Mapping[str, Any]) -> Iterator[str]:
    volumes = vmi_spec.get("volumes")
    volumes = [_fields(each) for each in volumes] if isinstance(volumes, list) else []
    for name, number in Counter(str(each.get("name")) for each in volumes).items():
        if number > 1:
            yield f"{number} volumes have the name {name}"
    for each in volumes:
        if "containerDisk" in each and not _fields(each["containerDisk"]).get("image"):
            yield f"the containerDisk of the volume {each.get('name')} has no image"


def _partition(manifest: Mapping[str, Any], replicas: object) -> Iterator[str]:
    annotations = _fields(_fields(manifest.get("metadata")).get("annotations"))
    last = str(annotations.get(PARTITION, "0")).rpartition(",")[2].partition(":")[0]
    if last.isascii() and last.isdigit() and isinstance(replicas, int) and int(last[:12]) >= max(replicas, 1):
        lower = f"the ordinals of {replicas} VMs are usually lower: then no VM is updated"
        yield f"annotation {PARTITION} is {last}, and {lower}"
