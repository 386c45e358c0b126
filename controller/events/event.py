"""Encodes an Event as the body of a create request, or as a patch that raises its count.

The Events are in the API group `core/v1`, as in the older recorder of client-go. For Events in this group,
`kubectl describe` shows the count and the age. Timestamps are in whole seconds, as in other objects of Kubernetes.
"""

import msgspec

from controller.events.correlator import ObjectRef, Series
from informers.resource import PartialObject, Resource

EVENTS = Resource(PartialObject, group="", version="v1", plural="events", kind="Event")


def body_of(series: Series, *, instance: str = "") -> bytes:
    ref = series.ref
    about = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
        "resourceVersion": ref.resource_version,
    }
    body = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": series.name, "namespace": namespace_of(ref)},
        "involvedObject": {field: value for field, value in about.items() if value},
        "reason": series.reason,
        "type": "Warning" if series.warning else "Normal",
        "source": {"component": series.component},
        "firstTimestamp": series.first.replace(microsecond=0),
        **_latest(series),
        "reportingComponent": series.component,
    }
    return msgspec.json.encode({**body, "reportingInstance": instance} if instance else body)


def patch_of(series: Series) -> bytes:
    return msgspec.json.encode(_latest(series))


def _latest(series: Series) -> dict[str, object]:
    return {"message": series.text, "lastTimestamp": series.last.replace(microsecond=0), "count": series.count}


def namespace_of(ref: ObjectRef) -> str:
    """Return the namespace of Events about this object: for a cluster-scoped one `default`, as kubectl expects."""
    return ref.namespace or "default"
