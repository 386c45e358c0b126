"""How often the program collects garbage while the first lists create the cached objects."""

import gc
from collections.abc import Iterator

import pytest

from controller.app import _freeze_program

CREATED = 1_050_000
"""So many objects cause several collections of the middle generation."""

AT_ONCE = 250_000
"""The largest number of objects that one collection may visit. That takes about 15 ms."""


@pytest.fixture
def visited() -> Iterator[list[int]]:
    """The number of objects that each collection visits, except for those of only the youngest generation."""
    numbers: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] > 0:
            numbers.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        yield numbers
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_no_collection_during_the_first_lists_visits_most_of_the_new_objects(visited: list[int]) -> None:
    _freeze_program()
    kept = [[] for _ in range(CREATED)]
    assert len(kept) == CREATED
    assert visited
    assert max(visited) <= AT_ONCE
