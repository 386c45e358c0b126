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


STATIC_DISK: Final = "a disk that a user made is taken over and deleted with the VM"
UNSEEN_END: Final = "a set that is being deleted makes its revision again and again while its watch is silent"
STRAY_MARK: Final = "a VM that is released while it drains keeps the mark"

KNOWN: Final = (
    Known("a_refusal_is_not_hammered", "^create controllerrevisions .* times in [0-9]+ s: $", UNSEEN_END),
    Known("a_disk_of_a_user_stays", "of a user was deleted", STATIC_DISK),
    Known("nothing_of_ours_is_left", "still has vmherd.dev/draining", STRAY_MARK),
)


def known_fault(violation: Violation) -> str:
    """Return the name of the known fault that explains the violation, or ""."""
    for each in KNOWN:
        if each.sentence == violation.name and re.search(each.pattern, violation.text):
            return each.fault
    return ""
