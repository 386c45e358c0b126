"""Helpers for tests of the judge: assertions, and owners with all their members in a made history."""

from __future__ import annotations

from tests.faults.judge import Run, Verdict, examine
from tests.faults.made_history import OURS, SIMULATOR, Made, pool, ready, replica_set, revision_of, vm, vmi
from tests.faults.states import VM, VMI, Object

RUN = Run()


def examined(made: Made, number: str, run: Run = RUN) -> Verdict:
    return examine(made.history(), run, only={number})


def assert_kept(made: Made, number: str, run: Run = RUN) -> None:
    verdict = examined(made, number, run)
    assert not verdict.violations, str(verdict)
    assert verdict.checks[number] > 0, f"{number} was never checked"


def assert_broken(made: Made, number: str, text: str, run: Run = RUN) -> None:
    verdict = examined(made, number, run)
    assert verdict.violations, f"{number} found nothing"
    assert any(text in each.message for each in verdict.violations), str(verdict)


def set_of(made: Made, replicas: int, **more: object) -> Object:
    """A set with all its VMIs, each ready."""
    owner = made.create(replica_set(replicas, **more))  # type: ignore[arg-type]
    for letter in "abcdefgh"[:replicas]:
        made.create(vmi(f"herd-{letter}", owner), by=OURS)
        made.patch(VMI, f"herd-{letter}", ready(), by=SIMULATOR)
    return owner


def pool_of(made: Made, replicas: int, **more: object) -> Object:
    """A pool with its revision and all its VMs."""
    owner = made.create(pool(replicas, **more))  # type: ignore[arg-type]
    made.create(revision_of(owner), by=OURS)
    for number in range(replicas):
        made.create(vm(f"pool-{number}", owner), by=OURS)
        made.patch(VM, f"pool-{number}", ready(), by=SIMULATOR)
    return owner


def scale(made: Made, owner: Object, replicas: int) -> None:
    made.patch(owner["kind"], owner["metadata"]["name"], {"spec": {"replicas": replicas}})
