"""Templates from the v1alpha2 days, made readable for today's KubeVirt (R13).

- A disk named its volume by `volumeName`; today disk and volume share one `name`. The volume keeps its name.
- A `registryDisk` volume is a `containerDisk`.
- `disk:` with nothing after it meant the default bus; it becomes `disk: {}`.

Everything else, fields unknown to anybody included, stays byte for byte. A spec that needs nothing comes back itself,
and what has an unexpected shape is left for the API server to judge.
"""

from __future__ import annotations

from msgspec import Raw

from controller.apimachinery.raw_json import NULL, Fields, change_at, change_each

_EMPTY = Raw(b"{}")
_SIGNS = (b'"volumeName"', b'"registryDisk"', b'"disk"')
_DEVICE_KINDS = ("lun", "cdrom", "floppy")


def modernise(spec: bytes) -> bytes:
    """A VMI spec in today's spelling."""
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
