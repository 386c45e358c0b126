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


DRAINS: Final = "a VM that drains and may not leave takes no turn, so the next one drains too"
RETURN: Final = "the time of a template begins with the patch, so a good template is rolled back"
GROWTH: Final = "a pool cannot return from a template that made a disk larger"
STEPS: Final = "a scale-in and a scale-out skip the steps of an update"
PROTECTED: Final = "nothing says that protected VMIs hold an update or a scale-in"
DRIFT: Final = "members whose labels another program changes are replaced without end"
STATIC_DISK: Final = "a disk that a user made is taken over and deleted with the VM"
ONCE: Final = "a new VM that does not run always counts as stopped by its user until KubeVirt has written its status"
PUSHED_OUT: Final = "six other templates in a row push the last template that worked out of the history"
UNSEEN_END: Final = "a set that is being deleted makes its revision again and again while its watch is silent"
STOPPED: Final = "nothing says that a VM is missing because its user has stopped it"
UNNAMED: Final = "`why` does not name a VMI that is not ready without a reason, as on a node that does not answer"
LATE_NOTE: Final = "a note of a pool is written only when something else wakes the pool"
FLAPPING: Final = "the mark of a drain is set and removed in turn, without a pause"
UNUSED: Final = "an undo returns to a template that was undone and that no VM has had"
NOTED: Final = "a healing is noted, and then held because others fail, so the VM stays and counts as healed"
NEXT_STEP: Final = "after the note of a step, the next step begins only when something else wakes the pool"
LOOPING: Final = "in a crash loop, the problem of a set names another VMI than its condition and `why`"
MEMORY: Final = "the controller remembers since when a VM is not ready, and the plugin cannot: it tells a later healing"
STRAY_MARK: Final = "a VM that is released while it drains keeps the mark"

KNOWN: Final = (
    Known("few_are_out_of_service", "while one drains", DRAINS),
    Known("few_are_out_of_service", "they run (Once|RerunOnFailure|Manual)$", ONCE),
    Known("a_good_template_is_not_rolled_back", "was rolled back", RETURN),
    Known("the_work_is_finished", "^(pool|set) .* after a return$", RETURN),
    Known("a_return_is_quick", "larger disks$", GROWTH),
    Known("steps_are_not_skipped", "have", STEPS),
    Known("what_waits_is_told", "(are updated|[0-9] exist), with the marks .*protected", PROTECTED),
    Known("a_refusal_is_not_hammered", "^create controllerrevisions .* times in [0-9]+ s: $", UNSEEN_END),
    Known("a_refusal_is_not_hammered", "^patch virtualmachines .* times in [0-9]+ s: $", FLAPPING),
    Known("what_waits_is_told", "are ready, with the marks", STOPPED),
    Known("all_views_agree", "says '', and the list says '[0-9]+ VMs? (is|are) stopped", STOPPED),
    Known("what_waits_is_told", "`why` does not say why [0-9]+ of [0-9]+ are ready$", UNNAMED),
    Known("all_views_agree", "the status says '[a-z0-9]+: CrashLoopBackOff', and `why`", LOOPING),
    Known("why_tells_what_comes_next", "was not, although its healing was noted$", NOTED),
    Known("the_plan_is_what_happens_next", "^(patch|delete) virtualmachine.* nothing, with .*replace-un", MEMORY),
    Known("all_views_agree", "[a-z0-9-]+: Running, not ready', and `why`", UNNAMED),
    Known("the_plan_is_what_happens_next", r"names \['virtualmachinepools/\w+'\], and nothing", LATE_NOTE),
    Known("the_plan_is_what_happens_next", "^the plan names .* nothing is written, with .*partition", NEXT_STEP),
    Known("a_refusal_is_not_hammered", "while labels change", DRIFT),
    Known("a_disk_of_a_user_stays", "of a user was deleted", STATIC_DISK),
    Known("a_template_that_worked_stays", "was deleted", PUSHED_OUT),
    Known("nothing_of_ours_is_left", "still has vmherd.dev/draining", STRAY_MARK),
)


def known_fault(violation: Violation) -> str:
    """Return the name of the known fault that explains the violation, or ""."""
    for each in KNOWN:
        if each.sentence == violation.name and re.search(each.pattern, violation.text):
            return each.fault
    return ""
