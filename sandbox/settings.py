"""The settings of the simulation: the `sim.vmherd.dev/...` annotations. VMIs get them from their template.

DataVolumes and PVCs have the annotations as well. A DataVolume with the behavior `fail` fails, and with `never-ready`
it stays in progress. A PVC with `never-ready` stays unbound. If a VM's template has `datavolume-error`, the DataVolumes
that the VM creates get the behavior `fail`.

A value that cannot be parsed is replaced by the default, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from controller.config.types import seconds_in

READY_AFTER: Final = "sim.vmherd.dev/ready-after"
"""The time from a VMI's creation to Ready=True, or from a DataVolume's creation to Succeeded."""

BEHAVIOR: Final = "sim.vmherd.dev/behavior"
"""How the object misbehaves: one of `Behavior`."""

SHUTDOWN_AFTER: Final = "sim.vmherd.dev/shutdown-after"
"""The time from a VMI's deletion until it is gone.

The default is 0 s, and 30 s with the behavior slow-shutdown. A `terminationGracePeriodSeconds` in the spec shortens
these 30 s, except if it is 0: example manifests have a 0, and a user of slow-shutdown wants to see a slow shutdown.
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
SLOW_SHUTDOWN_S: Final = 30.0
LONGEST_S: Final = 24 * 3600.0
_QUOTED_LENGTH: Final = 64


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """The parsed annotations. With `shutdown_after_s` 0, a VMI is gone as soon as it is deleted."""

    behavior: Behavior = "normal"
    ready_after_s: float = READY_AFTER_S
    shutdown_after_s: float = 0.0
    warnings: tuple[str, ...] = ()


DEFAULT: Final = SimulationSettings()


def read_settings(annotations: Mapping[str, str], *, grace_s: int = 0) -> SimulationSettings:
    """Parse an object's annotations. `grace_s` is its termination grace period, 0 if it has none."""
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
