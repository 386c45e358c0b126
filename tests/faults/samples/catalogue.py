"""The faults, and the samples: one fault at one place of one scenario.

A place is a kind of write or event and its number, such as the second create of a VM, or the third event of the watch
of VMIs. Each fault and each scenario has at least one sample. The simulated worlds of `tests/simulation` combine the
faults. They also have refusals of single requests, which never reach a server and so need no real one.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.annotations import BUSY_UNTIL
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
from tests.faults.resources import POOLS, SETS
from tests.faults.samples.objects import FAR


class Fault(Struct, frozen=True, kw_only=True):
    """What the proxy does at the place of a sample. Each further action happens at the next occasion that matches."""

    actions: tuple[Action, ...]
    times: int = 1
    released_after_s: float = 0.0
    """If the fault lasts, the runner ends the fault after this time."""

    recovers_s: float = 2.0
    """The time until the controller has tried again, or a new controller works."""


REFUSED: Final = Fault(actions=(), times=1000, released_after_s=4.0, recovers_s=6.0)
"""For a while, the server refuses all creates of VMs, dry runs included."""

MARKED: Final = Fault(actions=(), released_after_s=2.0, recovers_s=3.0)
"""Just before a delete request arrives, a user marks the object. Later the user removes the mark."""

FAULTS: Final = {
    "crash-before": Fault(actions=(CrashBefore(),), recovers_s=3.0),
    "crash-after": Fault(actions=(CrashAfter(),), recovers_s=3.0),
    "lost-answer": Fault(actions=(LoseAnswer(),)),
    "lost-answer-timeout": Fault(actions=(LoseAnswer(hang=True),), recovers_s=8.0),
    "half-an-answer": Fault(actions=(CutAnswer(),)),
    "reset": Fault(actions=(Reset(),)),
    "hang": Fault(actions=(Hang(),), recovers_s=8.0),
    "creates-refused-403": replace(REFUSED, actions=(Refuse(403, message="refused by a policy"),)),
    "creates-refused-500": replace(REFUSED, actions=(Refuse(500, message="failed calling webhook"),)),
    "protected-meanwhile": replace(MARKED, actions=(Mark(),)),
    "busy-meanwhile": replace(MARKED, actions=(Mark(BUSY_UNTIL, FAR),)),
    "snapshot-meanwhile": replace(MARKED, actions=(Mark(snapshot=True),)),
    "watch-held": Fault(actions=(HoldWatch(),), released_after_s=1.5, recovers_s=2.5),
    "watch-silent": Fault(actions=(HoldWatch(),), released_after_s=6.0, recovers_s=3.0),
    "watch-lags": Fault(actions=(LagWatch(0.4),)),
    "watch-stalls": Fault(actions=(HoldWatch(),), recovers_s=9.0),
    "watch-ends": Fault(actions=(EndWatch(),)),
    "watch-reset": Fault(actions=(EndWatch(clean=False),)),
    "watch-cut": Fault(actions=(CutWatch(),)),
    "watch-410": Fault(actions=(FailWatch(410),)),
    "watch-500": Fault(actions=(FailWatch(500),)),
    "watch-replayed": Fault(actions=(EndWatch(clean=False), ReplayWatch())),
    "event-repeated": Fault(actions=(RepeatEvent(),)),
    "event-omitted": Fault(actions=(OmitEvents(),)),
    "events-coalesced": Fault(actions=(Coalesce(0.5),)),
}


class Sample(Struct, frozen=True):
    """One fault at one place of one scenario."""

    scenario: str
    fault: str
    place: str
    """A kind of write such as `create/virtualmachines`, or a watch such as `watch/virtualmachines`, and a number."""

    def rules(self, version: str) -> tuple[Rule, ...]:
        """Return the rules for the proxy. `version` is the resourceVersion at the beginning of the run."""
        kind, _, number = self.place.partition("#")
        verb, resource, *subresource = kind.split("/")
        watch = verb == "watch"
        match = Match(resource=resource, watch=True) if watch else Match(verb, resource, "".join(subresource))
        fault = FAULTS[self.fault]
        first, *others = (ReplayWatch(version) if isinstance(each, ReplayWatch) else each for each in fault.actions)
        at_place = Rule(match, first, times=fault.times, after=int(number) - 1)
        return (at_place, *(Rule(match, each, times=1) for each in others))

    @property
    def shows_an_old_owner(self) -> bool:
        """True if the controller sees a change of the set or pool late. Until then, it works for the old spec."""
        return self.place.startswith((f"watch/{POOLS}#", f"watch/{SETS}#"))

    def __str__(self) -> str:
        return f"{self.scenario} {self.fault} {self.place}"


SAMPLES: Final = tuple(
    Sample(*line.split())
    for line in """
set-create crash-after create/virtualmachineinstances#2
set-create hang create/virtualmachineinstances#1
set-create lost-answer create/events#1
set-adopt lost-answer patch/virtualmachineinstances#1
set-scale-down crash-before delete/virtualmachineinstances#2
set-scale-down event-omitted watch/virtualmachineinstances#1
set-scale-budget reset patch/poddisruptionbudgets#1
set-rolling-update watch-replayed watch/virtualmachineinstances#4
set-rolling-update watch-410 watch/virtualmachineinstancereplicasets#1
set-rolling-update watch-silent watch/virtualmachineinstances#1
set-rolling-update watch-lags watch/virtualmachineinstances#1
set-rollback crash-after patch/virtualmachineinstancereplicasets#1
pool-scale-up lost-answer create/virtualmachines#1
pool-scale-down-drain half-an-answer patch/virtualmachines#1
pool-scale-down-drain event-repeated watch/virtualmachines#1
pool-scale-down-drain events-coalesced watch/virtualmachinepools#1
pool-scale-down-offline crash-after patch/datavolumes#1
pool-scale-down-offline watch-held watch/virtualmachines#1
pool-update-proactive watch-cut watch/virtualmachineinstances#4
pool-update-proactive watch-500 watch/virtualmachines#1
pool-update-proactive watch-ends watch/virtualmachineinstances#1
pool-update-proactive protected-meanwhile delete/virtualmachineinstances#1
pool-update-disks creates-refused-500 create/virtualmachines#1
pool-update-disks-offline busy-meanwhile delete/virtualmachines#1
pool-update-disks-larger lost-answer patch/persistentvolumeclaims#2
pool-update-steps crash-before patch/virtualmachinepools#2
pool-heal creates-refused-403 create/virtualmachines#1
pool-heal snapshot-meanwhile delete/virtualmachines#1
pool-delete-foreground watch-stalls watch/virtualmachinepools#1
pool-delete-foreground watch-reset watch/virtualmachines#1
pool-delete-background crash-before patch/virtualmachinepools#1
pool-delete-orphan lost-answer-timeout delete/controllerrevisions#1
""".strip().splitlines()
)
