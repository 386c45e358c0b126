"""The controller, with plans that keep its event loop busy, as annotations of a set or pool say.

The deadman of this controller waits for 4 seconds.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from controller.cli import main
from controller.leaderelection import own_thread
from controller.pool.rules import PoolRules
from controller.replicaset.rules import ReplicaSetRules
from informers.meta import annotations_of

BUSY: Final = "vmherd.dev/test-busy"
"""The seconds for which the first plan of the object keeps the loop busy. The annotation of the name with `-always` is
for each plan.
"""

AWAY_S: Final = 4.0

SLOW_S: Final = 1.5
"""The least CPU time of a busy plan, in seconds. On a crowded machine, it is much shorter than the time on the wall."""


def hindered(plan: Callable[[Any], Any]) -> Callable[[Any], Any]:
    seen: set[tuple[str, str]] = set()

    def hinder(snapshot: Any) -> Any:
        meta = snapshot.owner.metadata
        notes = annotations_of(meta)
        busy_s = float(notes.get(f"{BUSY}-always", 0))
        if BUSY in notes and (meta.uid, notes[BUSY]) not in seen:
            seen.add((meta.uid, notes[BUSY]))
            busy_s = float(notes[BUSY])
        end, spent = time.monotonic() + busy_s, time.thread_time() + min(busy_s, SLOW_S)
        while time.monotonic() < end or time.thread_time() < spent:
            pass
        return plan(snapshot)

    return hinder


if __name__ == "__main__":
    own_thread.LONGEST_AWAY_S = AWAY_S  # type: ignore[misc]
    for rules in (PoolRules, ReplicaSetRules):
        rules.plan = staticmethod(hindered(rules.plan))  # type: ignore[assignment, method-assign]
    sys.exit(main())
