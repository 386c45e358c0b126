"""A second API server whose member of etcd lags behind, so that its watch cache is older.

A list without a version is a consistent read, and a watch that streams its initial list waits for the present version
before the list ends. Until then it may send old objects. A request with resourceVersion=0 gets the old state.
"""

from collections.abc import Mapping
from typing import NamedTuple

from informers.meta import ObjectKey
from tests.fakes.requests import AnyResource, Document


class Past(NamedTuple):
    """The state that the older server shows, until the time `end`."""

    version: int
    end: float
    objects: Mapping[AnyResource, Mapping[ObjectKey, Document]]

    def of(self, resource: AnyResource) -> Mapping[ObjectKey, Document]:
        return self.objects.get(resource, {})
