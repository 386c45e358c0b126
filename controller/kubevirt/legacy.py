"""Templates from the v1alpha2 days, made readable for today's KubeVirt (R13).

- A disk named its volume by `volumeName`; today disk and volume share one `name`. The volume keeps its name.
- A `registryDisk` volume is a `containerDisk`.
- `disk:` with nothing after it meant the default bus; it becomes `disk: {}`.

Everything else, fields unknown to anybody included, stays byte for byte. A spec that needs nothing comes back itself,
and what has an unexpected shape is left for the API server to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import Raw

Fields: TypeAlias = dict[str, Raw]

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_EMPTY = Raw(b"{}")
_SIGNS = (b'"volumeName"', b'"registryDisk"', b'"disk"')
_DEVICE_KINDS = ("lun", "cdrom", "floppy")


def modernise(spec: bytes) -> bytes:
    """A VMI spec in today's spelling."""
    if not any(sign in spec for sign in _SIGNS):
        return spec
    changed = _change_at(spec, ("domain", "devices", "disks"), lambda disks: _change_each(disks, _modern_disk))
    return _change_at(changed, ("volumes",), lambda volumes: _change_each(volumes, _modern_volume))


def _modern_disk(disk: Fields) -> Fields:
    modern = {name: value for name, value in disk.items() if name != "volumeName"}
    if (volume := disk.get("volumeName")) and _is_given(volume):
        modern["name"] = volume
    if (target := disk.get("disk")) and not _is_given(target):
        if any(_is_given(disk.get(kind, Raw(b"null"))) for kind in _DEVICE_KINDS):
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


def _change_at(value: bytes, path: tuple[str, ...], change: Callable[[bytes], bytes]) -> bytes:
    """Replace what stands at the path, if there is such a path; itself where nothing changes."""
    if not path:
        return change(value)
    fields = _fields(value)
    if fields is None or path[0] not in fields:
        return value
    before = bytes(fields[path[0]])
    after = _change_at(before, path[1:], change)
    return value if after == before else msgspec.json.encode({**fields, path[0]: Raw(after)})


def _change_each(value: bytes, change: Callable[[Fields], Fields]) -> bytes:
    try:
        items = _decode_items(value)
    except msgspec.DecodeError:
        return value
    changed = False
    for index, item in enumerate(items):
        fields = _fields(item)
        if fields is not None and (modern := change(fields)) != fields:
            items[index] = Raw(msgspec.json.encode(modern))
            changed = True
    return msgspec.json.encode(items) if changed else value


def _fields(value: bytes | Raw) -> Fields | None:
    try:
        return _decode_fields(value)
    except msgspec.DecodeError:
        return None


def _is_given(value: Raw) -> bool:
    return bytes(value) not in (b"null", b'""')
