"""The workers: one reconciliation for a key at a time, failures of single keys, and the time of the next
reconciliation.
"""

import asyncio

import pytest
from structlog.testing import capture_logs

from controller.runtime.result import After, AwaitChange, Report, Retry
from informers.errors import TooManyRequests
from informers.meta import ObjectKey
from tests.controller.runtime.workers import A, B, Script, pauses, reports, worked_on, working

pytestmark = pytest.mark.looptime


async def test_an_exception_is_a_failure_of_its_key_and_is_retried_with_backoff():
    async def act(key: ObjectKey, call: int) -> Report:
        if key == A and call < 4:
            raise RuntimeError("boom")
        return Report(AwaitChange())

    script = Script(act)
    async with working(script) as (queue, tally):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(10)
    assert len(script.calls[A]) == 4
    assert len(script.calls[B]) == 1
    assert pauses(script, A) == pytest.approx([0.005, 0.010, 0.020])
    assert tally.panics == 3
    assert tally.results == {"error": 3, "success": 2}
    assert tally.busy == 0


WELL = Report(AwaitChange())


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        pytest.param([TooManyRequests("later", code=429, retry_after_s=7.0), WELL], [7.0], id="Retry-After"),
        pytest.param([Report(After(3.0)), WELL], [3.0], id="requeue"),
        pytest.param([WELL], [], id="await a change"),
    ],
)
async def test_the_result_decides_when_the_key_is_reconciled_again(
    each: list[Report | Exception], expected: list[float]
):
    assert pauses(await worked_on(reports(*each), A, for_s=100), A) == pytest.approx(expected)


async def test_the_same_failure_of_a_key_is_one_line_a_minute_and_another_failure_has_its_own():
    full, denied = (Report(Retry(text), {"failure": text}) for text in ("exceeded quota", "denied"))
    with capture_logs() as lines:
        await worked_on(reports(*[full] * 10, denied, full), A, for_s=200)
    levels = [line["log_level"] for line in lines]
    assert levels[:12] == ["warning", *["debug"] * 9, "warning", "warning"]
    assert "warning" in levels[12:], "a failure that stays is in the log again"


async def test_a_failed_pass_with_a_requeue_time_does_not_wait_for_a_longer_backoff():
    script = await worked_on(reports(Report(Retry("exceeded quota", also_after_s=3.0))), A, for_s=100)
    assert max(pauses(script, A)) == pytest.approx(3.0)
    assert pauses(script, A)[0] == pytest.approx(0.005), "a shorter backoff stays"


async def test_a_shutdown_finishes_the_running_passes_and_starts_no_more():
    done: list[ObjectKey] = []

    async def act(key: ObjectKey, call: int) -> Report:
        await asyncio.sleep(5)
        done.append(key)
        return Report(After(1.0))

    script = Script(act)
    async with working(script, workers=1) as (queue, tally):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(1)
    assert done == [A]
    assert tally.busy == 0
