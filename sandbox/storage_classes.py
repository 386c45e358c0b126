"""This module installs the StorageClasses of a sandbox.

The API server's admission plugin DefaultStorageClass gives the default class to each PVC without a class. The plugin
PersistentVolumeClaimResize allows a bound PVC to grow only if its class has `allowVolumeExpansion: true`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from sandbox.admin import Admin
from sandbox.persistent_volumes import DRIVER

STANDARD: Final = "standard"
"""The default StorageClass. Its PVCs can grow."""

FIXED_SIZE: Final = "fixed-size"
"""A StorageClass whose PVCs cannot grow."""

PATH: Final = "/apis/storage.k8s.io/v1/storageclasses"


def install(kubeconfig: Path) -> None:
    """Apply the StorageClasses. Raises Unanswered or Rejected. A second call changes nothing."""
    admin = Admin(kubeconfig)
    for name in (STANDARD, FIXED_SIZE):
        path = f"{PATH}/{name}?fieldManager=vmherd-sandbox&force=true"
        admin.send("PATCH", path, json.dumps(_manifest(name)).encode(), "application/apply-patch+yaml")


def _manifest(name: str) -> dict[str, Any]:
    is_default = name == STANDARD
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": marks},
        "provisioner": DRIVER,
        "allowVolumeExpansion": is_default,
    }
