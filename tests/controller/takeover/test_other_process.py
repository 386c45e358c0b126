"""Another vmherd is found by its writes: with another lease, or without one."""

import asyncio
from datetime import timedelta

import pytest

from controller.takeover.other_process import QUIET_S, WriterSample
from informers.meta import ObjectKey
from tests.builders import NOW
from tests.fakes.answers import AnswersByPath
from tests.pool_builders import POOLS

pytestmark = pytest.mark.looptime

KEY = ObjectKey("shop", "web")
PATH = POOLS.path(*KEY)
OWN, OTHER = "vmherd/pod_1", "vmherd/laptop_2"


def written(**writes_s: float) -> dict:
    """The metadata of an object that these processes wrote, each this number of seconds after the start."""
    names = {"own": OWN, "other": OTHER, "user": "kubectl-edit", "old": "vmherd"}
    fields = [
        {"manager": names[name], "time": (NOW + timedelta(seconds=at)).isoformat()} for name, at in writes_s.items()
    ]
    return {"metadata": {"name": "web", "namespace": "shop", "managedFields": [*fields, {"manager": OTHER}]}}


LOOKS = {
    "a later write of another process": ([written(own=0, other=31)], True),
    "its writes come before ours": ([written(own=0, other=5), written(own=60, other=31)], True),
    "the last writes of the leader before": ([written(own=0, other=30)], False),
    "only this process and users": ([written(own=0, user=500, old=500)], False),
    "this process has not written yet": ([written(other=500)], False),
}


@pytest.mark.parametrize(("answers", "expected"), LOOKS.values(), ids=LOOKS)
async def test_another_process_is_found_by_a_write_that_is_later_than_the_first_of_this_process(answers, expected):
    sample = WriterSample(AnswersByPath({PATH: answers}), "pod_1", lambda: [(POOLS, KEY)])
    found = [await sample.find() for _ in tuple(answers)][-1]
    assert (found is not None) is expected
    if found is not None:
        assert found.evidence == f"another vmherd, laptop_2, has written {POOLS.name} shop/web"
        assert not found.stops


async def test_another_process_has_stopped_if_it_has_written_nothing_for_ten_minutes():
    answers = [written(own=0, other=100), written(own=0, other=100), written(own=0, other=700)]
    sample = WriterSample(AnswersByPath({PATH: answers}), "pod_1", lambda: [(POOLS, KEY)])
    assert await sample.find() is not None
    await asyncio.sleep(QUIET_S)
    assert await sample.find() is None
    assert await sample.find() is not None, "it works again"
