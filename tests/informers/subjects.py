"""A small kind for tests, with its objects and events in the format of the API server."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource


class ConfigMap(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None


CONFIGMAPS = Resource(ConfigMap, group="", version="v1", plural="configmaps", kind="ConfigMap")

COLOR = "color"


def by_color(obj: ConfigMap) -> Iterable[str]:
    color = (obj.data or {}).get(COLOR)
    return () if color is None else tuple(color.split(","))


def config_map(
    name: str, version: int | str, *, uid: str | None = None, namespace: str = "ns", color: str | None = None
) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-of-{name}", resource_version=str(version))
    return ConfigMap(meta, None if color is None else {COLOR: color})


A1, B2 = config_map("a", 1), config_map("b", 2)


def key(name: str, namespace: str = "ns") -> ObjectKey:
    return ObjectKey(namespace, name)


def wire(obj: ConfigMap) -> dict[str, Any]:
    meta = {name: value for name, value in msgspec.to_builtins(obj.metadata).items() if value is not None}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": obj.data}


def line(kind: str, obj: ConfigMap | dict[str, Any]) -> bytes:
    body = wire(obj) if isinstance(obj, ConfigMap) else obj
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def bookmark(version: int | str, *, initial_end: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if initial_end else None
    meta = {"resourceVersion": str(version), "creationTimestamp": None, "annotations": annotations}
    return line("BOOKMARK", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta})


def failure(
    code: int, reason: str = "", message: str = "no", *causes: str, retry_after: int | None = None
) -> dict[str, Any]:
    """A Status, for the body of an answer or for an ERROR event."""
    details = {"causes": [{"reason": cause} for cause in causes], "retryAfterSeconds": retry_after}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }


def page(*objects: ConfigMap | dict[str, Any], version: int | str, token: str = "") -> bytes:
    items = [wire(obj) if isinstance(obj, ConfigMap) else obj for obj in objects]
    meta = {"resourceVersion": str(version), "continue": token}
    return json.dumps({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": items}).encode()


def broken(name: str, version: int | str, namespace: str = "ns") -> dict[str, Any]:
    """An object that cannot be decoded, because `data` has the wrong type."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": ["not", "a", "map"]}
