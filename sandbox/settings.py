"""This module reads the settings of the simulation from the annotations `sim.vmherd.dev/...` of an object.

A VMI gets the annotations from its template. DataVolumes and PVCs can have the annotations too. A DataVolume with the
behavior `fail` fails. A DataVolume with the behavior `never-ready` stays in progress. A PVC with the behavior
`never-ready` stays unbound. If the template of a VM has the behavior `datavolume-error`, the DataVolumes that the VM
creates get the behavior `fail`.

If the value of an annotation cannot be parsed, the default is used and a warning is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from controller.config.types import seconds_in

READY_AFTER: Final = "sim.vmherd.dev/ready-after"
"""The annotation with the time from the creation of a VMI until the VMI has the condition Ready=True.

For a DataVolume, this is the time from the creation until the DataVolume has the phase Succeeded.
"""

BEHAVIOR: Final = "sim.vmherd.dev/behavior"
"""The annotation that says how the simulated object behaves. The value is one of `Behavior`."""

SHUTDOWN_AFTER: Final = "sim.vmherd.dev/shutdown-after"
"""The annotation with the time from the deletion of a VMI until the VMI no longer exists.

The default is 0 seconds. With the behavior slow-shutdown, the default is 30 seconds, or the value of
`terminationGracePeriodSeconds` in the spec if this value is shorter. A value of 0 is ignored: example manifests have
the value 0, and a user of slow-shutdown wants to see a slow shutdown.
"""

Behavior: TypeAlias = Literal[
    "never-ready",
    "crash-loop",
    "image-error",
    "unschedulable",
    "pvc-missing",
    "datavolume-error",
    "finish",
    "fail",
    "unknown",
    "slow-shutdown",
    "normal",
]
BEHAVIORS: Final[tuple[Behavior, ...]] = get_args(Behavior)

READY_AFTER_S: Final = 0.3
"""The default of `sim.vmherd.dev/ready-after` in seconds."""

SLOW_SHUTDOWN_S: Final = 30.0
"""The default of `sim.vmherd.dev/shutdown-after` in seconds for the behavior slow-shutdown."""

LONGEST_S: Final = 24 * 3600.0
"""The longest duration in seconds that an annotation may have."""

_QUOTED_LENGTH: Final = 64


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """The settings of one object. `warnings` has a text for each annotation whose value cannot be parsed.

    If `shutdown_after_s` is 0, a VMI no longer exists immediately after its deletion.
    """

    behavior: Behavior = "normal"
    ready_after_s: float = READY_AFTER_S
    shutdown_after_s: float = 0.0
    warnings: tuple[str, ...] = ()


DEFAULT: Final = SimulationSettings()


def read_settings(annotations: Mapping[str, str], *, grace_s: int = 0) -> SimulationSettings:
    """Parse the annotations of an object and return the settings.

    `grace_s` is the termination grace period of the object in seconds, or 0 if the object has no grace period.
    """
    ready_after, behavior = annotations.get(READY_AFTER), annotations.get(BEHAVIOR)
    shutdown_after = annotations.get(SHUTDOWN_AFTER)
    if ready_after is None and behavior is None and shutdown_after is None:
        return DEFAULT
    return _parse(ready_after, behavior, shutdown_after, grace_s)


@lru_cache(maxsize=256)
def _parse(
    ready_after: str | None, behavior: str | None, shutdown_after: str | None, grace_s: int
) -> SimulationSettings:
    warnings: list[str] = []
    kind = _behavior(behavior, warnings)
    slow_s = min(SLOW_SHUTDOWN_S, grace_s) if grace_s > 0 else SLOW_SHUTDOWN_S
    shutdown_s = slow_s if kind == "slow-shutdown" else 0.0
    return SimulationSettings(
        behavior=kind,
        ready_after_s=_duration(READY_AFTER, ready_after, READY_AFTER_S, warnings),
        shutdown_after_s=_duration(SHUTDOWN_AFTER, shutdown_after, shutdown_s, warnings),
        warnings=tuple(warnings),
    )


def _behavior(text: str | None, warnings: list[str]) -> Behavior:
    for known in BEHAVIORS:
        if text == known:
            return known
    if text is not None:
        warnings.append(f"annotation {BEHAVIOR} is {_quoted(text)}: allowed are {', '.join(BEHAVIORS)}")
    return "normal"


def _duration(annotation: str, text: str | None, default_s: float, warnings: list[str]) -> float:
    if text is None:
        return default_s
    seconds = seconds_in(text)
    if seconds is None or seconds > LONGEST_S:
        warnings.append(
            f"annotation {annotation} is {_quoted(text)}: expected a duration of at most 24h, such as 300ms, 2s or "
            f"1m30s; {default_s:g}s is used instead"
        )
        return default_s
    return seconds


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
