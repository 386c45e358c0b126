"""The disk image in the template of a set or pool."""

from typing import Final

import msgspec

from plugin.views.edits import field, items

IMAGES: Final = (
    ("containerDisk", "image"),
    ("spec", "source", "registry", "url"),
    ("spec", "source", "http", "url"),
    ("spec", "sourceRef", "name"),
)
"""Where a volume or a template of a DataVolume names an image."""


def image_in(spec: bytes | msgspec.Raw) -> str:
    """Return the first image in the spec of a VM or VMI, or "" if there is none."""
    try:
        document = msgspec.json.decode(spec)
    except msgspec.DecodeError:
        return ""
    places = (("template", "spec", "volumes"), ("volumes",), ("dataVolumeTemplates",))
    volumes = [volume for path in places for volume in items(document, path)]
    found = (field(volume, path) for volume in volumes for path in IMAGES)
    return next((each for each in found if isinstance(each, str)), "")
