"""A barrier for tests: wait until a controller has seen all earlier writes, and has nothing more to do.

The controller must run with `--debug-endpoints`. `settled` reads what the controller has seen from `/debug/settled`. A
cache has seen the version `after` if one of these conditions is true:

- The last version of its watch, for example of an event or a bookmark, is not older than `after`.
- The cache agrees with a list of the API server that is not older than `after`: no listed object is newer than the last
  version of the watch, and no cached object is missing in the list.

The second condition decides at once for a resource whose objects have not changed for a while.
"""

import json
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected

ANSWERS_WITHIN_S = 30.0
PAUSE_S = 0.02
WITHIN_S = 90.0
TIMER_S = 0.5
"""The delay before a status is counted again is shorter than this time, in seconds."""


def settled(
    health_url: str,
    admin: Admin,
    *,
    namespace: str = "",
    no_timer_within_s: float = TIMER_S,
    events: bool = False,
) -> None:
    """Wait until the controller has seen all finished writes, and has nothing to do.

    `health_url` is the address of the controller's probes. The controller has nothing to do if no key is queued or
    running, the caches show all its own writes, and no timer ends within `no_timer_within_s`. With `namespace`, only
    the keys of this namespace count. With `events`, all Events must be sent too. After `WITHIN_S`, the test fails with
    the reason.
    """
    give_up = time.monotonic() + WITHIN_S
    # A version of the API server that is not older than any finished write.
    newest = str(admin.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])
    unseen = _Unseen(admin, newest)
    while True:
        why = unseen.why(health_url) or _business(
            _page(health_url, "settled"), namespace=namespace, no_timer_within_s=no_timer_within_s, events=events
        )
        if not why:
            return
        if time.monotonic() > give_up:
            pytest.fail(f"the controller has not settled within {WITHIN_S:g}s: {why}")
        time.sleep(PAUSE_S)


class _Unseen:
    """The watches that have not seen a version yet."""

    def __init__(self, admin: Admin, after: str) -> None:
        self._admin = admin
        self._after = int(after)
        self._seen: set[str] = set()

    def why(self, health_url: str) -> str:
        """Return the resource that a cache has not seen up to the version, or "" if all caches have seen it."""
        caches = _page(health_url, "settled")["caches"]
        late = {name: watches for name, watches in caches.items() if name not in self._seen and self._is_late(watches)}
        if not late:
            return ""
        # The lists are read before the objects of the caches. So the caches can only be newer than the lists.
        lists = {name: self._list(watches) for name, watches in late.items()}
        objects = _page(health_url, "objects")
        self._seen |= {name for name, listed in lists.items() if listed is None or shows(objects[name], listed)}
        unseen = ", ".join(late.keys() - self._seen)
        return f"the cache of {unseen} has not seen the version {self._after}: {late}" if unseen else ""

    def _is_late(self, watches: Mapping[str, str]) -> bool:
        return any(_number(version) < self._after for version in watches.values())

    def _list(self, paths: Iterable[str]) -> list[dict[str, Any]] | None:
        """Return the metadata of all objects of a resource, or None if the server does not serve the resource."""
        try:
            return [item["metadata"] for path in paths for item in self._admin.get(path)["items"]]
        except Rejected as refused:
            if refused.status == 404:
                return None
            raise


def shows(cache: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a cache is not older than this list of the API server.

    The cache may lack listed objects, because it leaves out objects that no rule needs.
    """
    version = min(map(_number, cache["watches"].values()))
    newest_listed = max((int(meta["resourceVersion"]) for meta in listed), default=0)
    names = {f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"] for meta in listed}
    return newest_listed <= version and names.issuperset(cache["objects"])


def _number(version: str) -> int:
    return int(version or -1)


def _business(page: Mapping[str, Any], *, namespace: str, no_timer_within_s: float, events: bool) -> str:
    """Return what the controller still has to do, or "" if there is nothing."""

    def counts(key: str) -> bool:
        return not namespace or key.startswith(f"{namespace}/")

    for kind, keys in page["kinds"].items():
        for state in ("queued", "running", "unsettled"):
            if busy := list(filter(counts, keys[state])):
                return f"these keys of the kind {kind} are {state}: {busy}"
        if due := [key for key, left_s in keys["delayed"].items() if counts(key) and left_s < no_timer_within_s]:
            return f"timers of the kind {kind} end soon: {due}"
    return f"{page['unsent_events']} Events are not sent" if events and page["unsent_events"] else ""


def _page(health_url: str, name: str) -> Any:
    with urllib.request.urlopen(f"{health_url}/debug/{name}", timeout=ANSWERS_WITHIN_S) as answer:
        return json.load(answer)
