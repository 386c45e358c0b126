"""A judgement is a list of sentences that a user would say. Each is a function over a finished life."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct

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
    for name, function in SENTENCES.items():
        for case in function(life):
            spoken.add(name)
            if case is not None:
                at, owner, text = case
                found.setdefault((name, owner), Violation(name, at, owner, text))
    return list(found.values()), spoken
