"""Tests of the detection of rest."""

from tests.faults.matrix.stillness import LOOK_S, Stillness

QUIET_S = 0.8


def looks(stillness: Stillness, count: int, *, every_s: float = LOOK_S, start: float = 100.0) -> list[bool]:
    return [stillness.look(start + number * every_s, busy=False) for number in range(count)]


def test_a_namespace_is_still_if_nothing_happens_for_the_quiet_time():
    seen = looks(Stillness(QUIET_S), 20)
    assert not any(seen[:16])
    assert all(seen[17:])


def test_a_request_begins_the_quiet_time_again():
    stillness = Stillness(QUIET_S)
    looks(stillness, 16)
    assert not stillness.look(100.8, busy=True)
    assert not any(looks(stillness, 15, start=100.85))


def test_an_event_loop_that_stands_still_shows_no_rest():
    stillness = Stillness(QUIET_S)
    looks(stillness, 2)
    assert not stillness.look(101.3, busy=False)


def test_at_a_slow_event_loop_the_quiet_time_takes_longer():
    stillness = Stillness(QUIET_S)
    assert not any(looks(stillness, 16, every_s=0.2))
    assert stillness.look(103.2, busy=False)
    assert stillness.middle == 100.0 + 8 * 0.2
