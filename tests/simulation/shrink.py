"""Makes the story of a failed life short: leaves out acts while the same sentence is violated."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.simulation.judge import Violation, judge
from tests.simulation.life import run_life
from tests.simulation.story import Act, Story
from tests.simulation.twins import NAME

MOST_RUNS = 120


def shrink(story: Story, violation: Violation) -> tuple[Story, Violation]:
    """Return a shorter story that violates the same sentence, and its violation.

    A violation that needs two lives keeps its story. First half of the acts are left out at once, then a quarter, down
    to single acts.
    """
    acts, found, runs = list(story.acts), violation, 0
    size = max(len(acts) // 2, 1) if violation.name != NAME else 0
    while size:
        start = 0
        while start < len(acts) and runs < MOST_RUNS:
            fewer = [*acts[:start], *acts[start + size :]]
            runs += 1
            again = _violation(story, fewer, violation.name)
            if again is None:
                start += size
            else:
                acts, found = fewer, again
        size //= 2
    return replace(story, acts=tuple(acts)), found


def _violation(story: Story, acts: Sequence[Act], name: str) -> Violation | None:
    found = judge(run_life(replace(story, acts=tuple(acts))))
    return next((each for each in found if each.name == name), None)
