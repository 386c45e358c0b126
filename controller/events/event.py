"""Encodes an Event as the body of a create request, or as a patch that raises its count.

The Events are in the API group `core/v1`, as in the older recorder of client-go. For Events in this group,
`kubectl describe` shows the count and the age. Timestamps are in whole seconds, as in other objects of Kubernetes.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from controller.events.correlator import ObjectRef, Series
from informers.meta import ObjectMeta
from informers.resource import Resource


class Event(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


EVENTS = Resource(Event, group="", version="v1", plural="events", kind="Event")


class _Source(Struct, frozen=True):
    component: str


class _InvolvedObject(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    resource_version: str = ""


class _EventMeta(Struct, frozen=True):
    name: str
    namespace: str


class _EventBody(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    api_version: str
    kind: str
    metadata: _EventMeta
    involved_object: _InvolvedObject
    reason: str
    message: str
    type: str
    source: _Source
    first_timestamp: datetime
    last_timestamp: datetime
    count: int
    reporting_component: str
    reporting_instance: str = ""


class _EventPatch(Struct, frozen=True, rename="camel"):
    message: str
    last_timestamp: datetime
    count: int


def body_of(series: Series, *, instance: str = "") -> bytes:
    """Return the body of the request that creates the Event."""
    ref = series.ref
    return msgspec.json.encode(
        _EventBody(
            api_version=EVENTS.api_version,
            kind=EVENTS.kind,
            metadata=_EventMeta(series.name, namespace_of(ref)),
            involved_object=_InvolvedObject(
                api_version=ref.api_version,
                kind=ref.kind,
                namespace=ref.namespace,
                name=ref.name,
                uid=ref.uid,
                resource_version=ref.resource_version,
            ),
            reason=series.reason,
            message=series.text,
            type="Warning" if series.warning else "Normal",
            source=_Source(series.component),
            first_timestamp=series.first.replace(microsecond=0),
            last_timestamp=series.last.replace(microsecond=0),
            count=series.count,
            reporting_component=series.component,
            reporting_instance=instance,
        )
    )


def patch_of(series: Series) -> bytes:
    """Return the merge patch that writes the latest message, time and count into an existing Event."""
    return msgspec.json.encode(_EventPatch(series.text, series.last.replace(microsecond=0), series.count))


def namespace_of(ref: ObjectRef) -> str:
    """Return the namespace of the Events about this object.

    Events about cluster-scoped objects are in the namespace `default`, because kubectl looks for such Events there.
    """
    return ref.namespace or "default"
