"""Runs lives, and prints each violation with its seed, its short story, and the command that replays it.

python -m tests.simulation --seeds 1000
python -m tests.simulation --from 17 --seeds 1 --story
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing import active_children

from msgspec.structs import replace

from tests.simulation.coverage import Coverage
from tests.simulation.examples import EXAMPLES
from tests.simulation.judge import SENTENCES, Violation, judge
from tests.simulation.life import run_life
from tests.simulation.runs import batches, run_batch, workers
from tests.simulation.story import Act, Story, make_story
from tests.simulation.twins import NAME, same_end
from tests.simulation.world import configure_logs


def expected(name: str) -> str:
    function = SENTENCES.get(name, same_end)
    return " ".join((function.__doc__ or "").split())


def told(seed: int, violation: Violation, story: Story) -> str:
    lines = [f"seed {seed}: {violation}", f"  expected: {expected(violation.name)}"]
    lines += [f"  world: {story.options}"]
    lines += [f"  {act}" for act in story.acts]
    lines += [f"  replay: make simulate ARGS='--from {seed} --seeds 1'"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=300, help="the number of lives")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--processes", type=int, default=2, help="lives that run at the same time")
    parser.add_argument("--shrink", type=int, default=3, help="how many violations get a short story")
    parser.add_argument("--story", action="store_true", help="print the whole story of the first seed")
    parser.add_argument("--verbose", action="store_true", help="print each violation at once")
    parser.add_argument("--example", choices=EXAMPLES, help="run the shortest story of a fault")
    args = parser.parse_args()
    configure_logs()
    if args.example:
        print(*judge(run_life(EXAMPLES[args.example])), sep="\n")
        return 0
    if args.story:
        print("\n".join(map(str, make_story(args.first).acts)))
    coverage, found, cpu_s, began = Coverage(), list[tuple[int, Violation]](), 0.0, time.monotonic()
    with workers(args.processes) as pool:
        try:
            for report in pool.map(run_batch, batches(args.first, args.seeds)):
                coverage.merge(report.coverage)
                found += report.found
                for seed, violation in report.found if args.verbose else ():
                    print(f"seed {seed}: {violation}"[:400], flush=True)
                cpu_s += report.cpu_s
        except KeyboardInterrupt:
            for worker in active_children():
                worker.terminate()
            print("interrupted")
    return _print(args.shrink, coverage, found, cpu_s, time.monotonic() - began)


def _print(most: int, coverage: Coverage, found: list[tuple[int, Violation]], cpu_s: float, wall_s: float) -> int:
    print("\n".join(coverage.lines()))
    print(f"{cpu_s / max(coverage.lives, 1):.2f} s of CPU a life, {wall_s:.0f} s in all")
    counts = Counter(violation.name for _, violation in found)
    for name, count in counts.most_common():
        seeds = [seed for seed, violation in found if violation.name == name]
        print(f"violated: {name} ({count}), seeds {', '.join(map(str, seeds[:10]))}")
    for seed, violation in _first_of_each(found)[:most]:
        story, shortest = shrink(make_story(seed), violation)
        print(f"\n{told(seed, shortest, story)}", flush=True)
    gaps = coverage.gaps()
    print(*(f"not covered: {each}" for each in gaps), sep="\n")
    return 1 if found or gaps else 0


def _first_of_each(found: list[tuple[int, Violation]]) -> list[tuple[int, Violation]]:
    first: dict[str, tuple[int, Violation]] = {}
    for seed, violation in found:
        first.setdefault(violation.name, (seed, violation))
    return list(first.values())


MOST_RUNS = 120
"""The most lives that make one story short."""


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


if __name__ == "__main__":
    sys.exit(main())
