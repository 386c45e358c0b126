"""What the kinds are put together from, and what comes out: one `Assembly` for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from controller.config import Config
from controller.events import EventRecorder
from controller.metrics import Metrics
from controller.metrics_page import SetFigures
from controller.runtime import Controller
from informers.client import ApiClient
from informers.informer import SharedInformer
from informers.meta import KubeObject
from informers.resource import Resource
from informers.store import Indexes

T = TypeVar("T", bound=KubeObject)


class Parts(NamedTuple):
    """What all kinds share."""

    config: Config
    client: ApiClient
    metrics: Metrics
    recorder: EventRecorder

    def informer(self, resource: Resource[T], *, indexes: Indexes[T]) -> SharedInformer[T]:
        """An informer of this resource in the namespaces that are watched."""
        return SharedInformer(
            resource,
            self.client,
            namespaces=self.config.namespaces,
            indexes=indexes,
            resync_period_s=self.config.resync_period_s,
            instruments=self.metrics,
        )


class Assembly(NamedTuple):
    """One kind, ready to run. `figures` gives the replicas of each of its objects, for the metrics page."""

    controller: Controller
    informer: SharedInformer[Any]
    figures: Callable[[], Iterable[SetFigures]]
