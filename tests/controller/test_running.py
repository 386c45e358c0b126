import asyncio

import pytest

from controller.running import ServiceEnded, leaf_errors, running

pytestmark = pytest.mark.looptime


class Journal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def service(self, name: str, *, stops_in_s: float = 0) -> None:
        """Run until cancelled. `stops_in_s` is the time that the service needs to stop."""
        self.lines.append(f"{name} starts")
        try:
            await asyncio.Event().wait()
        finally:
            if stops_in_s:
                await asyncio.sleep(stops_in_s)
            self.lines.append(f"{name} stops")


class Broken(Exception):
    pass


async def fail(after_s: float) -> None:
    await asyncio.sleep(after_s)
    raise Broken


async def fail_when_cancelled(error: Exception) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise error


async def return_after(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def test_services_start_in_order_before_the_block_and_stop_after_it():
    journal = Journal()
    async with running(journal.service("a"), journal.service("b")):
        journal.lines.append("block")
    assert journal.lines == ["a starts", "b starts", "block", "a stops", "b stops"]


async def test_inner_scopes_stop_before_outer_ones():
    journal = Journal()
    async with running(journal.service("outer")), running(journal.service("inner", stops_in_s=5)):
        journal.lines.append("block")
    assert journal.lines == ["outer starts", "inner starts", "block", "inner stops", "outer stops"]


@pytest.mark.parametrize("after_s", [0, 3])
async def test_a_service_that_fails_ends_the_block_and_its_siblings(after_s):
    journal = Journal()
    with pytest.raises(ExceptionGroup) as caught:
        async with running(journal.service("sibling"), fail(after_s)):
            await journal.service("block")
    assert [type(leaf) for leaf in leaf_errors(caught.value)] == [Broken]
    assert {"sibling starts", "sibling stops"} <= set(journal.lines)
    assert ("block starts" in journal.lines) == ("block stops" in journal.lines)
    assert asyncio.get_running_loop().time() == after_s


async def test_a_service_that_fails_ends_inner_scopes_before_outer_scopes():
    journal = Journal()
    with pytest.raises(ExceptionGroup) as caught:
        async with (
            running(journal.service("outermost")),
            running(fail(after_s=3)),
            running(journal.service("inside", stops_in_s=1)),
        ):
            await asyncio.sleep(100)
    assert [type(leaf) for leaf in leaf_errors(caught.value)] == [Broken]
    assert journal.lines == ["outermost starts", "inside starts", "inside stops", "outermost stops"]


async def test_a_service_that_returns_is_reported_by_name():
    with pytest.raises(ExceptionGroup) as caught:
        async with running(return_after(2)):
            await asyncio.sleep(100)
    (ended,) = leaf_errors(caught.value)
    assert isinstance(ended, ServiceEnded)
    assert str(ended) == "return_after returned"


async def test_a_cancelled_service_may_return():
    async def return_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with running(return_when_cancelled()):
        await asyncio.sleep(1)


async def test_a_service_that_fails_while_it_stops_is_reported():
    with pytest.raises(ExceptionGroup) as caught:
        async with running(fail_when_cancelled(Broken())):
            await asyncio.sleep(1)
    assert [type(leaf) for leaf in leaf_errors(caught.value)] == [Broken]


async def test_failures_of_the_block_and_of_a_service_are_both_raised():
    with pytest.raises(ExceptionGroup) as caught:
        async with running(fail_when_cancelled(KeyError())):
            raise Broken
    assert {type(leaf) for leaf in leaf_errors(caught.value)} == {Broken, KeyError}


@pytest.mark.parametrize("after_s", [0, 5], ids=["while services start", "in the block"])
async def test_cancellation_from_outside_stops_all_services_and_is_raised_again(after_s):
    journal = Journal()

    async def whole() -> None:
        async with running(journal.service("outer")), running(journal.service("inner", stops_in_s=1)):
            await asyncio.sleep(100)

    task = asyncio.create_task(whole())
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    started = [line.removesuffix(" starts") for line in journal.lines if line.endswith("starts")]
    stopped = [line.removesuffix(" stops") for line in journal.lines if line.endswith("stops")]
    assert stopped == started[::-1]
    assert len(started) == (2 if after_s else 1)


async def test_a_task_carries_the_name_of_its_service():
    async def record_name() -> None:
        names.append(asyncio.current_task().get_name())
        await asyncio.Event().wait()

    names: list[str] = []
    async with running(record_name()):
        pass
    assert names[0].endswith("record_name")


def test_leaf_errors_unwraps_groups_in_order_and_returns_a_plain_error_and_base_exceptions():
    a, b, c, interrupt = ValueError("a"), KeyError("b"), OSError("c"), KeyboardInterrupt()
    assert leaf_errors(a) == (a,)
    group = BaseExceptionGroup("", [ExceptionGroup("", [a, b]), interrupt, c])
    assert leaf_errors(group) == (a, b, interrupt, c)
