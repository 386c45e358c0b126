"""The faults of the network and of the API server. A fault is a value with a beginning and an end.

The network and the server ask `Faults` before each step. `Faults` has no clock: the callers pass the time.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from informers.meta import ObjectKey
from tests.fakes.requests import AnyResource, Document


class Fault(Struct, frozen=True):
    """A fault from `start` until `end`, in seconds of the life. `rate` is the share of the requests that it hits.

    `kind` is one of:

    - `lost`: the server carries the request out, and the connection breaks before the answer.
    - `refused-connection`: no connection can be opened.
    - `slow`: each request takes up to three seconds longer.
    - `throttle`: the server answers 429 with Retry-After.
    - `error`: the server answers 500, 503 or 504, and the write may have happened.
    - `reset`: open watches break, also in the middle of a line.
    - `silent`: the open watches of `target`, a resource, send nothing more, not even an end.
    - `stall`: a watch that is opened now sends a part of its data, and then nothing more.
    - `stall-list`: the same, but only for a watch that begins with a list.
    - `missed`: a watch of `target`, a resource, sends nothing of a deletion. So caches show an object that is gone.
    - `unreadable`: half of the objects of `target` cannot be read one by one, only in lists and watches.
    - `doubled`: a repeat of each PUT and DELETE arrives too, and only the answer to the repeat comes back.
    - `stale`: an API server is cut off from etcd. Its watches show old states, and new watches on it get a 504.
    - `older`: a part of the new watches reach an API server whose state is as old as the beginning of the fault.
    - `expired`: the server has forgotten old versions, so a watch from them gets 410.
    - `refuse`: a policy refuses our writes that `target` selects: `verb plural[/subresource] [annotation]`.
    - `strip`: a policy removes the annotation or label `target` from our writes.
    - `relabel`: another controller changes a label of the objects that change: `plural label [value]`.
    - `clock`: the wall clock of the controller with the number `target` jumps by the length of the fault times `rate`.
    - `quota`: no VM and no VMI can be created.
    - `webhook`: a webhook on the resource in `target` is `down`, does `deny` our writes, or adds a `label` or a `spec`
      field to the objects that we create.
    """

    kind: str
    start: float
    end: float
    rate: float = 1.0
    target: str = ""

    def holds(self, now: float) -> bool:
        return self.start <= now < self.end


class Past(NamedTuple):
    """The state that a second API server shows until the time `end`, because its member of etcd lags behind.

    A list without a version is a consistent read, and a watch that streams its initial list waits for the present
    version before the list ends. Until then it may send old objects. A request with resourceVersion=0 gets the old
    state.
    """

    version: int
    end: float
    objects: Mapping[AnyResource, Mapping[ObjectKey, Document]]

    def of(self, resource: AnyResource) -> Mapping[ObjectKey, Document]:
        return self.objects.get(resource, {})


class Faults:
    def __init__(self) -> None:
        self.all: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self.all.append(fault)

    def now(self, kind: str, now: float) -> Iterator[Fault]:
        for fault in self.all:
            if fault.kind == kind and fault.start <= now < fault.end:
                yield fault

    def hit(self, kind: str, now: float, chance: Any) -> Fault | None:
        """Return a fault of this kind that hits a request now, or None."""
        for fault in self.now(kind, now):
            if fault.rate >= 1 or chance.random() < fault.rate:
                return fault
        return None

    def overlap(self, start: float, end: float, *kinds: str) -> bool:
        """Return True if a fault, of one of these kinds if there are any, holds at some time between the two times."""
        return any(fault.start <= end and fault.end >= start for fault in self.all if not kinds or fault.kind in kinds)
