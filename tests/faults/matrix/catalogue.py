"""The catalogue of faults of the matrix, and the injections that follow from a reference run.

An injection is one fault at one place of one scenario. A place is a kind of write or event and a number, such as the
second create of a VM, or the third event of the watch of VMIs. So an injection hits the same place in each run.
"""

import fnmatch
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tests.faults.judge.states import BUSY_UNTIL, FAR
from tests.faults.proxy.actions import (
    Action,
    Coalesce,
    CrashAfter,
    CrashBefore,
    CutAnswer,
    CutWatch,
    EndWatch,
    FailWatch,
    Hang,
    HoldWatch,
    LagWatch,
    LoseAnswer,
    Mark,
    OmitEvents,
    Refuse,
    RepeatEvent,
    ReplayWatch,
    Reset,
)
from tests.faults.proxy.rules import Match, Rule


class WritePlace(Struct, frozen=True, order=True):
    """The n-th write of this kind, counted from 1. If the verb is empty, all writes are counted."""

    verb: str
    resource: str
    subresource: str
    number: int

    def __str__(self) -> str:
        kind = "/".join(filter(None, (self.verb, self.resource, self.subresource)))
        return f"{kind or 'write'}#{self.number}"

    @property
    def match(self) -> Match:
        if not self.verb:
            return Match("write", besides=("events", "leases"))
        return Match(self.verb, self.resource, self.subresource)


class WatchPlace(Struct, frozen=True, order=True):
    """The n-th event of the watch of a resource, counted from 1."""

    resource: str
    number: int

    def __str__(self) -> str:
        return f"watch/{self.resource}#{self.number}"

    @property
    def match(self) -> Match:
        return Match(resource=self.resource, watch=True)


class ProcessPlace(Struct, frozen=True, order=True):
    """The whole control plane."""

    number: int = 1

    def __str__(self) -> str:
        return "process"


Place: TypeAlias = WritePlace | WatchPlace | ProcessPlace


class Fault(Struct, frozen=True, kw_only=True):
    """A fault of the catalogue."""

    name: str
    actions: tuple[Action, ...]
    """What the proxy does at the place of the injection.

    Each further action happens at the next occasion that matches.
    """

    verbs: tuple[str, ...] = ()
    """The verbs of the writes to which the fault applies. None means all."""

    places: str = "*"
    """A pattern for the scenario and the place, such as `pool-* create/virtualmachines#*`."""

    times: int = 1
    released_after_s: float = 0.0
    """If the fault lasts, the runner ends the fault after this time."""

    lasts_s: float = 1.0
    """The time after which the controller reaches the server again and sees its current state."""

    recovers_s: float = 2.0
    """The time until the controller has tried again, or a new controller works."""

    loses: bool = False
    """True if the fault can hide the answer to a write that the server has carried out."""

    on_events: bool = False
    """True if the fault applies to writes of Events too. A lost Event is no failure, so a few faults are enough."""

    @property
    def crashes(self) -> bool:
        return isinstance(self.actions[0], CrashBefore | CrashAfter)

    @property
    def refuses(self) -> bool:
        """True if every matching request is refused until the fault ends."""
        return isinstance(self.actions[0], Refuse) and self.released_after_s > 0

    def fits(self, scenario: str, place: Place) -> bool:
        verb = place.verb if isinstance(place, WritePlace) else ""
        of_verb = not self.verbs or not verb or verb in self.verbs
        return of_verb and fnmatch.fnmatch(f"{scenario} {place}", self.places)


REFUSED = Fault(
    name="",
    actions=(),
    verbs=("create",),
    places="pool-* create/virtualmachines#*",
    times=1000,
    released_after_s=4.0,
    lasts_s=5.0,
    recovers_s=6.0,
)
"""For a while, the server refuses all creates of VMs, dry runs included."""

MARKED = Fault(name="", actions=(), verbs=("delete",), released_after_s=2.0, lasts_s=1.0, recovers_s=3.0)
"""Just before a delete request arrives, a user marks the object. Later the user removes the mark."""


WRITE_FAULTS = (
    Fault(name="crash-before", on_events=True, actions=(CrashBefore(),), lasts_s=5.0, recovers_s=3.0),
    Fault(name="crash-after", on_events=True, actions=(CrashAfter(),), lasts_s=5.0, recovers_s=3.0),
    Fault(name="lost-answer", on_events=True, actions=(LoseAnswer(),), loses=True),
    Fault(name="lost-answer-timeout", actions=(LoseAnswer(hang=True),), lasts_s=7.0, recovers_s=8.0, loses=True),
    Fault(name="half-an-answer", actions=(CutAnswer(),), loses=True),
    Fault(name="reset", actions=(Reset(),)),
    Fault(name="hang", on_events=True, actions=(Hang(),), lasts_s=7.0, recovers_s=8.0),
    Fault(name="403", on_events=True, actions=(Refuse(403, message="exceeded quota: by the proxy"),)),
    Fault(name="404", actions=(Refuse(404),), verbs=("create",)),
    Fault(name="409", actions=(Refuse(409),)),
    Fault(name="409-exists", actions=(Refuse(409, reason="AlreadyExists"),), verbs=("create",)),
    Fault(name="422", actions=(Refuse(422),)),
    Fault(name="429", actions=(Refuse(429, retry_after="1"),)),
    Fault(name="429-without-retry-after", actions=(Refuse(429),)),
    Fault(name="500", on_events=True, actions=(Refuse(500),)),
    Fault(name="500-thrice", actions=(Refuse(500),), times=3),
    Fault(name="503", actions=(Refuse(503),)),
    Fault(name="503-retry-after", actions=(Refuse(503, retry_after="1"),)),
    Fault(name="504", actions=(Refuse(504),)),
    replace(REFUSED, name="creates-refused-403", actions=(Refuse(403, message="refused by a policy"),)),
    replace(REFUSED, name="creates-refused-500", actions=(Refuse(500, message="failed calling webhook"),)),
    replace(MARKED, name="protected-meanwhile", actions=(Mark(),), places="pool-[uh]* delete/virtualmachine*"),
    replace(
        MARKED,
        name="busy-meanwhile",
        actions=(Mark(BUSY_UNTIL, FAR),),
        places="pool-[uh]* delete/virtualmachine*",
    ),
    replace(
        MARKED, name="snapshot-meanwhile", actions=(Mark(snapshot=True),), places="pool-[uh]* delete/virtualmachines#*"
    ),
)
WATCH_FAULTS = (
    Fault(name="watch-held", actions=(HoldWatch(),), released_after_s=1.5, lasts_s=2.5, recovers_s=2.5),
    Fault(name="watch-silent", actions=(HoldWatch(),), released_after_s=6.0, lasts_s=7.0, recovers_s=3.0),
    Fault(name="watch-lags", actions=(LagWatch(0.4),), lasts_s=60.0),
    Fault(name="watch-stalls", actions=(HoldWatch(),), lasts_s=12.0, recovers_s=9.0),
    Fault(name="watch-ends", actions=(EndWatch(),)),
    Fault(name="watch-reset", actions=(EndWatch(clean=False),)),
    Fault(name="watch-cut", actions=(CutWatch(),)),
    Fault(name="watch-410", actions=(FailWatch(410),)),
    Fault(name="watch-500", actions=(FailWatch(500),)),
    Fault(name="watch-replayed", actions=(EndWatch(clean=False), ReplayWatch())),
    Fault(name="event-repeated", actions=(RepeatEvent(),)),
    Fault(name="event-omitted", actions=(OmitEvents(),)),
    Fault(name="events-coalesced", actions=(Coalesce(0.5),)),
)
FAULTS = {fault.name: fault for fault in (*WRITE_FAULTS, *WATCH_FAULTS)}
WATCH_NUMBERS = (1, 4)
"""The events of a watch at which faults begin."""


class Injection(Struct, frozen=True):
    """One fault at one place of one scenario."""

    scenario: str
    fault: str
    place: Place

    def rules(self, version: str = "") -> tuple[Rule, ...]:
        """Return the rules for the proxy. `version` is the resourceVersion at the beginning of the run."""
        if isinstance(self.place, ProcessPlace):
            return ()
        fault, match = FAULTS[self.fault], self.place.match
        after = self.place.number - 1
        first, *others = (
            ReplayWatch(version) if isinstance(action, ReplayWatch) else action for action in fault.actions
        )
        return (
            Rule(match, first, times=fault.times, after=after),
            *(Rule(match, action, times=1) for action in others),
        )

    def __str__(self) -> str:
        return f"{self.scenario} {self.fault} {self.place}"

    @property
    def command(self) -> str:
        """Return the command that repeats this injection."""
        if isinstance(self.place, ProcessPlace):
            return f"make faults ARGS='--scenario {self.scenario} --fault {self.fault}'"
        return f"make faults ARGS='--scenario {self.scenario} --fault {self.fault} --at {self.place}'"


class Trace(Struct, frozen=True):
    """What a run did: its writes in their order, and the number of events of each watch."""

    writes: tuple[WritePlace, ...]
    events: tuple[tuple[str, int], ...]


def numbered(writes: Iterable[tuple[str, str, str]]) -> tuple[WritePlace, ...]:
    """Return the places of these writes, given as verb, resource and subresource."""
    seen: Counter[tuple[str, str, str]] = Counter()
    places = []
    for write in writes:
        seen[write] += 1
        places.append(WritePlace(*write, seen[write]))
    return tuple(places)


def injections(scenario: str, traces: Sequence[Trace]) -> Iterator[Injection]:
    """Derive all injections of a scenario from its reference runs.

    The number of status writes differs a little between two runs. Crashes are injected at each write of any reference
    run. Other faults are injected only at writes that occur in all reference runs.
    """
    every = [set(trace.writes) for trace in traces]
    for place in dict.fromkeys(place for trace in traces for place in trace.writes):
        for fault in WRITE_FAULTS:
            fits = fault.fits(scenario, place) and (fault.on_events or place.resource != "events")
            if fits and (fault.crashes or all(place in writes for writes in every)):
                yield Injection(scenario, fault.name, place)
    counts = [dict(trace.events) for trace in traces]
    for resource in sorted({resource for each in counts for resource in each}):
        count = min(each.get(resource, 0) for each in counts)
        for fault in WATCH_FAULTS:
            for number in WATCH_NUMBERS:
                if number <= count:
                    yield Injection(scenario, fault.name, WatchPlace(resource, number))


def injections_at(scenario: str, place: Place) -> Iterator[Injection]:
    """Return the injections at one place. The place can be missing in the reference runs."""
    if isinstance(place, ProcessPlace):
        return
    of_watches = isinstance(place, WatchPlace)
    for fault in WATCH_FAULTS if of_watches else WRITE_FAULTS:
        if fault.fits(scenario, place):
            yield Injection(scenario, fault.name, place)


def sample(everything: Sequence[Injection], size: int, seed: int) -> tuple[Injection, ...]:
    """Choose about `size` injections that cover each scenario and each fault at least once. The seed decides which."""
    chance = random.Random(seed)
    shuffled = list(everything)
    chance.shuffle(shuffled)
    chosen: list[Injection] = []
    for wanted in ("scenario", "fault"):
        covered = {getattr(each, wanted) for each in chosen}
        for injection in shuffled:
            value = getattr(injection, wanted)
            if value not in covered:
                covered.add(value)
                chosen.append(injection)
    more = [each for each in shuffled if each not in set(chosen)]
    return (*chosen, *more[: max(0, size - len(chosen))])


_PLACE = re.compile(r"(?P<kind>[^#]+)#(?P<number>[1-9][0-9]*)")


def parse_place(text: str) -> Place:
    """Parse a text such as "create/virtualmachines#2". Raises ValueError if the format is wrong."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a place: {text}; examples: create/virtualmachines#2, watch/virtualmachines#1, write#3")
    kind, number = found["kind"].split("/"), int(found["number"])
    if kind == ["write"]:
        return WritePlace("", "", "", number)
    if kind[0] == "watch" and len(kind) == 2:
        return WatchPlace(kind[1], number)
    if 2 <= len(kind) <= 3:
        verb, resource, subresource = (*kind, "")[:3]
        return WritePlace(verb, resource, subresource, number)
    raise ValueError(f"not a place: {text}")
