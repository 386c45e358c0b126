"""The parsed form of a pool's spec. If the spec is invalid, the parser returns the first error in the spec (P1)."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.quantities import Amount, parse_amount
from controller.kubevirt.annotations import (
    INDEX_SYSPREP,
    MAX_UNHEALTHY,
    MOST_DISRUPTIVE,
    REPLACE_UNREADY_AFTER,
    SUBSTITUTE_LOST_AFTER,
    is_marked,
)
from controller.kubevirt.limits import check_spec
from controller.kubevirt.pool_types import Pool
from controller.pool.spec.one_shot import replaces_finished
from controller.pool.spec.partition import PartitionStep, parse_partition
from controller.pool.spec.policies import (
    Healing,
    ScaleIn,
    Update,
    parse_healing,
    parse_scale_in,
    parse_update,
)
from controller.pool.spec.template import FIELD, Template, parse_template
from controller.replicas.settings import spares_running, time_limit
from controller.replicas.wrong_annotations import setting
from informers.meta import annotations_of

MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)


class Intent(Struct, frozen=True, kw_only=True):
    """A valid pool spec. The selector is not empty and matches the template's labels.

    `steps` are the steps of the annotation `PARTITION`. `step` is the present step, from 1. VMs with an ordinal below
    `partition` keep their revision in this step, and those below `last_partition` in all steps. These three values are
    set with the VMs of the pool (`situation_of`). `replace_unready_after` is the time limit for a running
    VM to become ready, or None. `most_disruptive` is the value of the annotation `MOST_DISRUPTIVE`, or None.
    `replaces_finished` and `spares_running` are the settings of a one-shot pool (P25). `max_unhealthy` is the number of
    VMs that may fail, or be lost, at the same time. `substitute_lost_after` is the time after which a lost VM gets a
    substitute, or None.

    `replicas` is the number in the spec. `wanted` is the number of VMs that the pool may have now (P20): with the limit
    of replicas, and with the `substitutes` for lost VMs (P28). `situation_of` sets both, and they are the same in the
    plan, in the status and in the plugin.

    If the VMs return by themselves (P29), `template` is the one to which they return, and `rejected` is the one of the
    spec. If they cannot have it any more, both are the one of the spec, and `stranded` says why.
    """

    replicas: int
    wanted: int
    selector: Selector
    template: Template
    max_unavailable: Amount
    scale_in: ScaleIn
    update: Update
    healing: Healing | None
    steps: tuple[PartitionStep, ...] = ()
    step: int = 0
    partition: int = 0
    last_partition: int = 0
    replace_unready_after: timedelta | None = None
    most_disruptive: str | None = None
    replaces_finished: bool = False
    spares_running: bool = False
    rejected: Template | None = None
    stranded: str = ""
    max_unhealthy: Amount = MAX_UNHEALTHY_DEFAULT
    substitute_lost_after: timedelta | None = None
    substitutes: int = 0

    @property
    def heals(self) -> bool:
        """Return True if the controller replaces VMs that fail (P15)."""
        return self.healing is not None or self.replace_unready_after is not None or self.replaces_finished

    @property
    def most_unavailable(self) -> int:
        """Return the maximum number of VMs that the controller may make unavailable at the same time (P14)."""
        return self.max_unavailable.of(self.wanted_without_substitutes)

    @property
    def wanted_without_substitutes(self) -> int:
        return self.wanted - self.substitutes


def parse_intent(owner: Pool) -> Intent | FieldError:
    spec = owner.spec
    template = parse_template(spec, index_sysprep=is_marked(owner.metadata, INDEX_SYSPREP))
    checked = check_spec(spec, template, FIELD)
    if isinstance(checked, FieldError):
        return checked
    amount = _parse_max_unavailable(spec.max_unavailable)
    if isinstance(amount, FieldError):
        return amount
    return _with_policies(owner, *checked, amount)


def _with_policies(
    owner: Pool, replicas: int, selector: Selector, template: Template, amount: Amount
) -> Intent | FieldError:
    scale_in, update = parse_scale_in(owner.spec), parse_update(owner.spec)
    healing = parse_healing(owner.spec.autohealing)
    if isinstance(scale_in, FieldError):
        return scale_in
    if isinstance(update, FieldError):
        return update
    if isinstance(healing, FieldError):
        return healing
    return Intent(
        replicas=replicas,
        wanted=replicas,
        selector=selector,
        template=template,
        max_unavailable=amount,
        scale_in=scale_in,
        update=update,
        healing=healing,
        steps=parse_partition(owner.metadata),
        replace_unready_after=time_limit(owner.metadata, REPLACE_UNREADY_AFTER),
        most_disruptive=annotations_of(owner.metadata).get(MOST_DISRUPTIVE),
        replaces_finished=replaces_finished(owner),
        spares_running=spares_running(owner.metadata),
        max_unhealthy=parse_amount(setting(owner.metadata, MAX_UNHEALTHY) or "") or MAX_UNHEALTHY_DEFAULT,
        substitute_lost_after=time_limit(owner.metadata, SUBSTITUTE_LOST_AFTER),
    )


def max_unavailable(owner: Pool) -> int | None:
    """Return how many VMs may be unavailable at the same time, or None if the field is invalid."""
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    amount = _parse_max_unavailable(owner.spec.max_unavailable)
    return None if isinstance(amount, FieldError) else amount.of(wanted)


def _parse_max_unavailable(value: int | str | None) -> Amount | FieldError:
    amount = parse_amount("100%" if value is None else value)
    if amount is not None:
        return amount
    return FieldError(f'spec.maxUnavailable is {quoted(str(value))}: it must be a number from 1, or "1%" to "100%"')
