"""Known faults: violations that are expected until the fault is mended. This list may only shrink.

An entry has the sentence, a pattern of the violation's text, and the fault in words. A violation that matches no entry
is new.
"""

import re
from typing import Final, NamedTuple

from tests.simulation.judge import Violation


class Known(NamedTuple):
    sentence: str
    pattern: str
    fault: str


LATE_NOTE: Final = "a note of a pool is written only when something else wakes the pool"
FLAPPING: Final = "the mark of a drain is set and removed in turn, without a pause"
UNUSED: Final = "an undo returns to a template that was undone and that no VM has had"
NOTED: Final = "a healing is noted, and then held because others fail, so the VM stays and counts as healed"
NEXT_STEP: Final = "after the note of a step, the next step begins only when something else wakes the pool"
MEMORY: Final = "the controller remembers since when a VM is not ready, and the plugin cannot: it tells a later healing"

KNOWN: Final = (
    Known("a_refusal_is_not_hammered", "^patch virtualmachines .* times in [0-9]+ s: $", FLAPPING),
    Known("why_tells_what_comes_next", "was not, although its healing was noted$", NOTED),
    Known("the_plan_is_what_happens_next", "^(patch|delete) virtualmachine.* nothing, with .*replace-un", MEMORY),
    Known("the_plan_is_what_happens_next", r"names \['virtualmachinepools/\w+'\], and nothing", LATE_NOTE),
    Known("the_plan_is_what_happens_next", "^the plan names .* nothing is written, with .*partition", NEXT_STEP),
)


def known_fault(violation: Violation) -> str:
    """Return the name of the known fault that explains the violation, or ""."""
    for each in KNOWN:
        if each.sentence == violation.name and re.search(each.pattern, violation.text):
            return each.fault
    return ""
