"""Whether KubeVirt changes running VMIs: as its object says, or as is the default of its version."""

import pytest
from structlog.testing import capture_logs

from controller.kubevirt.live_updates import RolloutSettings
from controller.preflight.rollout_strategy import RolloutStrategy
from controller.takeover.virt_controller import KUBEVIRTS
from informers.errors import NotFound, TransportError
from tests.controller.takeover.answers import Answers

SERVED = {"resources": [{"name": KUBEVIRTS.plural}]}


def answers(strategy: str | None, version: str = "") -> Answers:
    """A cluster with one KubeVirt."""
    server = Answers()
    spec = {"configuration": {"vmRolloutStrategy": strategy}} if strategy else {}
    installed = {"metadata": {"name": "kubevirt"}, "spec": spec, "status": {"observedKubeVirtVersion": version}}
    server.by_path |= {KUBEVIRTS.group_path: [SERVED], KUBEVIRTS.path(): [{"items": [installed]}]}
    return server


async def rollout(server: Answers) -> RolloutSettings:
    known = RolloutStrategy(server)
    await known.read()
    return known.rollout


CASES: dict[str, tuple[str | None, str, bool]] = {
    "LiveUpdate": ("LiveUpdate", "v1.3.0", True),
    "Stage": ("Stage", "v1.9.0", False),
    "the default of 1.6": (None, "v1.6.0", True),
    "the default of 1.5": (None, "v1.5.2", False),
    "a development build": (None, "devel", False),
}


@pytest.mark.parametrize(("strategy", "version", "expected"), CASES.values(), ids=CASES)
async def test_the_strategy_comes_from_the_object_or_from_the_version(
    strategy: str | None, version: str, expected: bool
) -> None:
    assert (await rollout(answers(strategy, version))).changes is expected


@pytest.mark.parametrize(("version", "expected"), [("v1.8.3", False), ("v1.9.0", True), ("v1.10.1", True), ("", False)])
async def test_p13_kubevirt_judges_each_change_since_1_9_with_each_strategy(version: str, expected: bool) -> None:
    for strategy in ("LiveUpdate", "Stage"):
        assert (await rollout(answers(strategy, version))).judges is expected


@pytest.mark.parametrize(
    ("methods", "expected"),
    [(None, False), ([], False), (["Evict"], False), (["LiveMigrate"], True), (["LiveMigrate", "Evict"], True)],
)
async def test_p13_kubevirt_migrates_a_changed_vm_only_if_its_methods_say_so(
    methods: list[str] | None, expected: bool
) -> None:
    server = answers("LiveUpdate")
    spec = server.by_path[KUBEVIRTS.path()][0]["items"][0]["spec"]
    spec["workloadUpdateStrategy"] = {"workloadUpdateMethods": methods}
    known = RolloutStrategy(server)
    assert known.rollout.migrates, "not known yet"
    await known.read()
    assert known.rollout.migrates is expected


async def test_without_kubevirt_and_without_permission_no_change_is_live_and_nothing_is_refused() -> None:
    denied = answers("LiveUpdate")
    denied.denied.add(("list", KUBEVIRTS.plural))
    known = RolloutStrategy(denied)
    with capture_logs() as logs:
        await known.read()
        await known.read()
    assert not known.rollout.changes
    assert KUBEVIRTS.path() not in denied.asked
    assert [each["why"] for each in logs if "why" in each] == ["no permission to list kubevirts.kubevirt.io"]
    assert not (await rollout(Answers())).changes


async def test_before_the_first_answer_no_live_change_is_taken_for_a_restart() -> None:
    server = answers("Stage")
    server.by_path[KUBEVIRTS.path()] = [TransportError("lost", sent=True), {"items": []}]
    known = RolloutStrategy(server)
    await known.read()
    assert known.rollout.changes
    await known.read()
    assert not known.rollout.changes


async def test_a_failed_read_keeps_the_strategy_and_a_later_read_follows_a_change() -> None:
    server = answers("LiveUpdate")
    known = RolloutStrategy(server)
    await known.read()
    for failure in (TransportError("lost", sent=True), NotFound("gone", code=404)):
        server.by_path[KUBEVIRTS.path()] = [failure]
        await known.read()
        assert known.rollout.changes is isinstance(failure, TransportError)
