"""One-shot pools: each VM runs once, for example for one job. A finished VM is replaced (P25)."""

from collections.abc import Iterator

from controller.apimachinery.field_error import quoted
from controller.apimachinery.raw_json import text_of, value_at
from controller.kubevirt.annotations import REPLACE_FINISHED, SCALE_IN, is_marked
from controller.kubevirt.pool_types import Pool, PoolSpec
from controller.kubevirt.vms import ONCE
from controller.pool.spec.policies import keeps_disks
from informers.meta import annotations_of


def replaces_finished(owner: Pool) -> bool:
    """Return True if the pool asks for the replacement of finished VMs, and nothing speaks against it."""
    return is_marked(owner.metadata, REPLACE_FINISHED) and not _obstacle(owner.spec)


def one_shot_problems(owner: Pool) -> Iterator[str]:
    """Yield why the pool cannot do what its annotations for one-shot pools ask for."""
    obstacle = _obstacle(owner.spec)
    if obstacle and is_marked(owner.metadata, REPLACE_FINISHED):
        yield f"annotation {REPLACE_FINISHED} has no effect: {obstacle}"
    elif SCALE_IN in annotations_of(owner.metadata) and (strategy := _strategy_of(owner.spec)) != ONCE:
        yield f"annotation {SCALE_IN} keeps every VM: {_unfit(strategy)}"


def _obstacle(spec: PoolSpec) -> str:
    strategy = _strategy_of(spec)
    if strategy != ONCE:
        return _unfit(strategy)
    return "statePreservation keeps the disks, and a new VM would use the disks of the finished one" * keeps_disks(spec)


def _unfit(strategy: str) -> str:
    return f"the run strategy of the template is {quoted(strategy)}, and only VMs with {quoted(ONCE)} finish"


def _strategy_of(spec: PoolSpec) -> str:
    template = spec.virtual_machine_template
    # If the template cannot be read, the pool is invalid, and P1 reports it.
    return (text_of(value_at(template.spec, "runStrategy")) or "") if template is not None else ""
