"""The paths at which a volume of a VMI template refers to a disk, a ConfigMap or a Secret (P5)."""

from collections.abc import Iterable
from typing import Final

from controller.kubevirt.normal_form import Path, value_at

DISKS: Final[tuple[Path, ...]] = (("dataVolume", "name"), ("persistentVolumeClaim", "claimName"))
CONFIG_MAPS: Final[tuple[Path, ...]] = (("configMap", "name"),)
SECRETS: Final[tuple[Path, ...]] = (
    ("secret", "secretName"),
    ("cloudInitNoCloud", "secretRef", "name"),
    ("cloudInitNoCloud", "networkDataSecretRef", "name"),
    ("cloudInitConfigDrive", "secretRef", "name"),
    ("cloudInitConfigDrive", "networkDataSecretRef", "name"),
)
SYSPREP_CONFIG_MAPS: Final[tuple[Path, ...]] = (("sysprep", "configMap", "name"),)
SYSPREP_SECRETS: Final[tuple[Path, ...]] = (("sysprep", "secret", "name"),)
"""The controller adds the ordinal at the `SYSPREP` paths only if the pool has the annotation `INDEX_SYSPREP`."""


def refer(volumes: object, paths: Iterable[Path]) -> bool:
    """Return True if one of the volumes has a reference at one of the paths. `volumes` is decoded JSON."""
    paths = tuple(paths)
    return isinstance(volumes, list) and any(value_at(volume, path) for volume in volumes for path in paths)
