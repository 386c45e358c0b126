"""Converts VMI templates in KubeVirt's v1alpha2 format to the format of today's KubeVirt API (R13).

- A disk has the name of its volume in `volumeName`. Today, it has the same `name`.
- A `registryDisk` volume becomes a `containerDisk` volume.
- `disk:` without a value means the default bus: `disk: {}`, or nothing for a `lun`, `cdrom` or `floppy`.

All other values stay unchanged, byte for byte, also unknown fields and those of an unexpected type.
"""

from msgspec import Raw

from controller.apimachinery.raw_json import NULL, Fields, change_at, change_each

_EMPTY = Raw(b"{}")
_SIGNS = (b'"volumeName"', b'"registryDisk"', b'"disk"')
_DEVICE_KINDS = ("lun", "cdrom", "floppy")


def modernise(spec: bytes) -> bytes:
    """Return the VMI spec, as JSON, in the format of today's KubeVirt API."""
    if not any(sign in spec for sign in _SIGNS):
        return spec
    changed = change_at(spec, ("domain", "devices", "disks"), lambda disks: change_each(disks, _modern_disk))
    return change_at(changed, ("volumes",), lambda volumes: change_each(volumes, _modern_volume))


def _modern_disk(disk: Fields) -> Fields:
    modern = {name: value for name, value in disk.items() if name != "volumeName"}
    if (volume := disk.get("volumeName")) and _is_given(volume):
        modern["name"] = volume
    if (target := disk.get("disk")) and not _is_given(target):
        if any(_is_given(disk.get(kind, NULL)) for kind in _DEVICE_KINDS):
            del modern["disk"]
        else:
            modern["disk"] = _EMPTY
    return modern


def _modern_volume(volume: Fields) -> Fields:
    if "registryDisk" not in volume:
        return volume
    modern = {name: value for name, value in volume.items() if name != "registryDisk"}
    modern.setdefault("containerDisk", volume["registryDisk"])
    return modern


def _is_given(value: Raw) -> bool:
    return bytes(value) not in (b"null", b'""')
