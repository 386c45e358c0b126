"""Show that a change of the source leaves all plans and statuses as they are, byte for byte.

`python -m tests.plans_corpus > FILE` before the change, and `python -m tests.plans_corpus | diff FILE -` after it. Each
line is a digest of the plan and of the status for a snapshot of a fixed corpus.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from controller.pool.plan import plan as plan_of_pool
from controller.pool.status import next_status as status_of_pool
from controller.replicaset.plan import plan as plan_of_set
from controller.replicaset.status import next_status as status_of_set
from controller.runtime.members import rosters
from tests.controller.pool.test_groups import situations
from tests.strategies import snapshots

Plans = Iterator[tuple[object, object]]


def of_pool(seen: Any) -> Plans:
    yield plan_of_pool(seen), status_of_pool(seen, ())


def of_set(seen: Any) -> Plans:
    yield plan_of_set(seen), status_of_set(seen, ())


def digests_of(number: int, strategy: st.SearchStrategy[Any], plans_of: Callable[[Any], Plans]) -> list[str]:
    """Draw this number of examples, always the same ones, and return the digests of their plans."""
    found: list[str] = []

    @seed(1)
    @settings(
        max_examples=number,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def record(drawn: Any) -> None:
        found.extend(hashlib.sha256(repr(each).encode()).hexdigest() for each in plans_of(drawn))

    record()
    return found


def main() -> None:
    # Hypothesis also draws constants of our source. Without them, a change of the source does not change the corpus.
    providers._get_local_constants = providers.Constants
    rosters.SMALL = 2  # type: ignore[misc]
    for name, strategy, plans_of in (("pool", situations(), of_pool), ("set", snapshots(), of_set)):
        for number, digest in enumerate(digests_of(1500, strategy, plans_of)):
            print(f"{name} {number}: {digest}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # some strategies draw in the order of a set of texts
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    main()
