"""The guests of the simulation: what the VMI of an image does, as a timeline of status changes."""

from random import Random
from typing import Final, NamedTuple

GOOD: Final = ("v1", "v2", "v3", "v4", "slow")
"""The images whose guests come up, and stay up. `slow` needs up to 20 seconds."""

BAD: Final = ("broken", "crash", "hang", "dies")
"""The images whose guests never stay ready for long."""

JOB: Final = "job"
"""The image whose guests succeed after a while."""

SICK: Final = "sick"
"""The image whose guests hang after they have been ready for a while."""


class Step(NamedTuple):
    """A change of a VMI, `after_s` seconds after the change before. `ready` is the status of the condition Ready."""

    after_s: float
    phase: str
    ready: bool = False
    reason: str = "GuestNotRunning"
    message: str = ""


def timeline(image: str, chance: Random) -> tuple[Step, ...]:
    """What happens to a VMI after its creation."""
    scheduling = Step(chance.uniform(0.1, 0.5), "Scheduling")
    scheduled = Step(chance.uniform(0.2, 1), "Scheduled")
    running = Step(chance.uniform(0.3, 1), "Running")
    boot_s = chance.uniform(8, 20) if image == "slow" else chance.uniform(0.5, 4)
    ready = Step(boot_s, "Running", ready=True)
    starting = (scheduling, scheduled, running)
    match image:
        case "broken":
            return (scheduling, Step(0.5, "Scheduling", message="Back-off pulling image"))
        case "crash":
            return (scheduling, scheduled, Step(chance.uniform(0.5, 2), "Failed"))
        case "hang":
            return starting
        case "dies":
            return (*starting, ready, Step(chance.uniform(4, 14), "Failed"))
        case "job":
            return (*starting, ready, Step(chance.uniform(10, 30), "Succeeded"))
        case "sick":
            return (*starting, ready, Step(chance.uniform(10, 40), "Running"))
    return (*starting, ready)
