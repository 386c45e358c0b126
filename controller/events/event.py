"""Encodes an Event of `core/v1`, whose count and age `kubectl describe` shows, with timestamps in whole seconds."""

import msgspec

from controller.events.correlator import ObjectRef, Series
from informers.resource import PartialObject, Resource

EVENTS = Resource(PartialObject, group="", version="v1", plural="events", kind="Event")


def body_of(series: Series, instance: str) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": namespace_of(series.ref)},
            "involvedObject": series.ref,
            "reason": series.reason,
            "type": "Warning" if series.warning else "Normal",
            "source": {"component": series.component},
            "firstTimestamp": series.first.replace(microsecond=0),
            **_latest(series),
            "reportingComponent": series.component,
            "reportingInstance": instance,
        }
    )


def patch_of(series: Series) -> bytes:
    return msgspec.json.encode(_latest(series))


def _latest(series: Series) -> dict[str, object]:
    return {"message": series.text, "lastTimestamp": series.last.replace(microsecond=0), "count": series.count}


def namespace_of(ref: ObjectRef) -> str:
    """Return the namespace of Events about this object: for a cluster-scoped one `default`, as kubectl expects."""
    return ref.namespace or "default"
