"""Decides with robust statistics whether a series of samples stays flat.

The first quarter of a run is the warm-up and does not count. The early median is the median of the second quarter, and
the late median is that of the last quarter. A series grows if the late median exceeds the early median by more than the
tolerance. In addition, one of these conditions must be true, so that chance is not the cause:

- a steady growth: the growth by the Theil-Sen slope of the last three quarters exceeds the tolerance;
- a step: three quarters of the late samples are larger than three quarters of the early samples.

A series that approaches a limit is flat. An example is the memory of an allocator. So a series grows only if the growth
from the third to the last quarter also exceeds half of the tolerance.

A few outliers or a short disturbance do not change the result.
"""

import statistics
from collections.abc import Sequence

from msgspec import Struct

FEWEST_SAMPLES = 8
"""The smallest number of samples. Each quarter of the run needs at least two samples."""

MOST_PAIRED = 400
"""The largest number of samples for the Theil-Sen slope. The slope needs one division for each pair of samples."""


class Tolerance(Struct, frozen=True):
    """The growth that still counts as flat.

    `share` is the allowed growth as a share of the early median. The growth `least` is always allowed.
    """

    share: float
    least: float

    def of(self, early: float) -> float:
        return max(self.share * abs(early), self.least)


class Verdict(Struct, frozen=True, kw_only=True):
    """The trend of one series of samples. `flat` is False if the series grows. `early`, `middle` and `late` are the
    medians of the second, third and last quarter.

    `slope_per_hour` is the Theil-Sen slope.
    """

    early: float
    middle: float
    late: float
    highest: float
    slope_per_hour: float
    allowed: float
    flat: bool


def judge(times_s: Sequence[float], values: Sequence[float], tolerance: Tolerance) -> Verdict:
    """Judge one series. Raise ValueError if there are fewer than `FEWEST_SAMPLES` samples."""
    count = len(values)
    if count < FEWEST_SAMPLES:
        raise ValueError(f"{count} samples are too few, at least {FEWEST_SAMPLES} are necessary")
    second, last = slice(count // 4, count // 2), slice(count - count // 4, count)
    third = slice(second.stop, last.start)
    early, middle, late = (statistics.median(values[part]) for part in (second, third, last))
    slope = theil_sen(times_s[second.start :], values[second.start :])
    between_s = statistics.median(times_s[last]) - statistics.median(times_s[second])
    allowed = tolerance.of(early)
    is_steady = slope * between_s > allowed
    is_step = statistics.quantiles(values[last], n=4)[0] > statistics.quantiles(values[second], n=4)[2]
    goes_on = late - middle > allowed / 2
    grows = late - early > allowed and goes_on and (is_steady or is_step)
    return Verdict(
        early=early,
        middle=middle,
        late=late,
        highest=max(values),
        slope_per_hour=slope * 3600,
        allowed=allowed,
        flat=not grows,
    )


def theil_sen(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope of all pairs of samples, per second.

    If there are more than `MOST_PAIRED` samples, only every nth sample is used.
    """
    step = max(1, -(-len(values) // MOST_PAIRED))
    points = list(zip(times_s[::step], values[::step], strict=True))
    slopes = [
        (value - before) / (time - earlier)
        for number, (time, value) in enumerate(points)
        for earlier, before in points[:number]
        if time > earlier
    ]
    return statistics.median(slopes) if slopes else 0.0
