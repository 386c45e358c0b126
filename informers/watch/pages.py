"""Decodes the pages of a list."""

from typing import TypeVar

from informers.meta import KubeObject
from informers.nesting import TOO_DEEP, WHY, cut_deep_values
from informers.resource import UNDECODABLE, Resource, decode_raw_page
from informers.watch.parser import Undecodable, undecodable
from informers.watch.watch_state import PageRead

T = TypeVar("T", bound=KubeObject)


def decode_page(resource: Resource[T], body: bytes) -> PageRead[T]:
    """Decode a page of a list. Raise one of UNDECODABLE if the page is not a list."""
    try:
        page = resource.decode_page(body)
    except UNDECODABLE:
        return _decode_each(resource, body)
    return PageRead(page.items or (), page.metadata.resource_version or "", page.metadata.continue_ or "")


def _decode_each(resource: Resource[T], body: bytes) -> PageRead[T]:
    page = decode_raw_page(cut_deep_values(body))
    objects: list[T] = []
    rejected: list[Undecodable] = []
    for item in page.items or ():
        if TOO_DEEP in bytes(item):
            rejected.append(undecodable(resource, item, WHY))
            continue
        try:
            objects.append(resource.decode(item))
        except UNDECODABLE as error:
            rejected.append(undecodable(resource, item, str(error)))
    meta = page.metadata
    return PageRead(tuple(objects), meta.resource_version or "", meta.continue_ or "", tuple(rejected))
