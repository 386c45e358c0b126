"""A judgement is a list of sentences that a user would say. Each is a function over a finished life."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct

from controller.kubevirt import annotations as names
from tests.simulation.life import Life


class Violation(Struct, frozen=True):
    """A sentence that does not hold. `name` is the name of the sentence's function."""

    name: str
    at: float
    owner: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} at {self.at:.0f} s, {self.owner}: {self.text}"


Found: TypeAlias = tuple[float, str, str]
"""The time, the set or pool, and what happened."""

Sentence: TypeAlias = Callable[[Life], Iterator[Found | None]]
"""A sentence yields None when something happens about which it speaks."""

SENTENCES: Final[dict[str, Sentence]] = {}


BLIND: Final[dict[str, tuple[str, ...]]] = {
    names.STANDBY_STATE: (
        *("nothing_that_serves_is_stopped_for_a_standby", "a_standby_never_serves", "only_a_marked_standby_is_paused"),
        *("a_standby_is_no_more_than_asked_for", "no_more_is_made_than_is_missing", "who_serves_is_in_service"),
    ),
    names.DRAINING: ("who_serves_is_in_service",),
    "runStrategy": ("nothing_that_serves_is_stopped_for_a_standby", "no_more_is_made_than_is_missing"),
    "ownerReferences": ("steps_are_not_skipped", "no_more_is_made_than_is_missing", "few_are_out_of_service"),
    names.ROLLED_BACK: ("a_vm_gets_a_template_once",),
    names.REVISION_NAME: ("a_vm_gets_a_template_once",),
}
ALWAYS: Final = ("the_plan_is_what_happens_next", "why_tells_what_comes_next", "a_refusal_is_told")
"""A write that was taken back too often waits, and only its controller knows this."""

"""If another controller takes off a mark of ours, these sentences cannot tell from the objects what should happen."""


def sentence(function: Sentence) -> Sentence:
    """Add a sentence to the judgement. Its docstring is what a user expects."""
    SENTENCES[function.__name__] = function
    return function


def judge(life: Life) -> list[Violation]:
    """Return the violations of all sentences, at most one for each sentence and owner."""
    return judged(life)[0]


def judged(life: Life) -> tuple[list[Violation], set[str]]:
    """Return the violations, and the names of the sentences that spoke about something that happened."""
    found: dict[tuple[str, str], Violation] = {}
    spoken: set[str] = set()
    targets = {act.args[3] for act in life.story.acts if act.what == "fault" and act.args[0] == "relabel"}
    blind = {each for target in targets for each in (*ALWAYS, *BLIND.get(target.split(" ")[1], ()))}
    for name, function in SENTENCES.items():
        if name in blind:
            continue
        for case in function(life):
            spoken.add(name)
            if case is not None:
                at, owner, text = case
                found.setdefault((name, owner), Violation(name, at, owner, text))
    return list(found.values()), spoken
