"""R11: the conditions `Available` and `Progressing`, which mean what they mean on a Deployment."""

from datetime import timedelta

import pytest

from controller.apimachinery.conditions import Condition, merge_conditions
from controller.replicas.kstatus import Health, Stall, availability, progress_conditions
from tests.builders import NOW

LATER = NOW + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("wanted", "ready", "most_unavailable", "is_available"),
    [
        (4, 3, 1, "True"),
        (4, 2, 1, "False"),
        (1, 0, 1, "False"),
        (1, 1, 1, "True"),
        (0, 0, 1, "True"),
        (2, 1, 0, "False"),
        (4, 3, 4, "False"),
    ],
)
@pytest.mark.parametrize(
    ("health", "progress"),
    [
        (Health("Running"), ("True", "Complete", None)),
        (Health("Stopped"), ("True", "Complete", None)),
        (Health("Updating", "web-1: it boots"), ("True", "Updating", None)),
        (Health("Paused"), ("Unknown", "Paused", None)),
        (Health("Degraded", "late", Stall("InvalidSpec", "late")), ("False", "InvalidSpec", "late")),
    ],
)
def test_r11_availability_counts_what_an_update_leaves_and_progress_follows_the_word(
    wanted: int, ready: int, most_unavailable: int, is_available: str, health: Health, progress: tuple[object, ...]
):
    assert availability(wanted, ready, most_unavailable).status == is_available
    found = progress_conditions(health)["Progressing"]
    assert found is not None
    assert (found.status, found.reason, found.message) == progress


def test_a_condition_keeps_its_time_while_its_status_stays():
    def times(old: tuple[Condition, ...] | None, status: str) -> tuple[Condition, ...]:
        return merge_conditions(old, {"Available": Condition(type="Available", status=status)}, LATER) or ()

    earlier = merge_conditions(None, {"Available": Condition(type="Available", status="False")}, NOW)
    assert [each.last_transition_time for each in times(earlier, "False")] == [NOW]
    assert [each.last_transition_time for each in times(earlier, "True")] == [LATER]
