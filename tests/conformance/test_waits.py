"""How a conformance case waits: the time limits, and the message if an expectation is not met."""

import pytest

from conformance.case import Unmet
from informers.errors import StatusError
from tests.conformance.stored_objects import StoredObjects, case_namespace
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime


async def seconds() -> float:
    return now()


@pytest.mark.parametrize("patience", [0.5, 2.0])
async def test_the_patience_of_the_run_multiplies_the_time_limit(patience: float):
    space = case_namespace(StoredObjects(), patience=patience)
    with pytest.raises(Unmet) as unmet:
        await space.until("the end of time", seconds, lambda seen: False, within_s=10)
    assert 10 * patience - 0.5 < now() < 10 * patience + 0.5
    assert unmet.value.expected == f"the end of time within {10 * patience:g} s"


async def test_until_reports_the_last_state_in_one_line():
    space = case_namespace(StoredObjects())

    async def look() -> list[str]:
        return ["first\nline", "second"]

    with pytest.raises(Unmet) as unmet:
        await space.until_equal("no line", look, [], within_s=1)
    assert unmet.value.seen == '["first\\nline","second"]'


async def test_a_failed_request_is_repeated_and_reported_if_it_does_not_recover():
    space = case_namespace(StoredObjects())

    async def look() -> int:
        if now() < 3:
            raise StatusError("the server is busy", code=500)
        return 1

    assert await space.until("an answer", look, bool) == 1

    async def never() -> int:
        raise StatusError("the server is down", code=500)

    with pytest.raises(Unmet) as unmet:
        await space.until("an answer", never, bool, within_s=1)
    assert unmet.value.seen == "the server is down"


async def test_stays_fails_as_soon_as_the_state_changes():
    space = case_namespace(StoredObjects())
    await space.stays("less than 10 seconds", seconds, lambda seen: seen < 10, for_s=5)
    with pytest.raises(Unmet):
        await space.stays("less than 6 seconds", seconds, lambda seen: seen < 6, for_s=100)
    assert now() < 7
