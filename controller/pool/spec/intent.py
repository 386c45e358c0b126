"""The parsed form of a pool's spec. If the spec is invalid, the parser returns the first error in the spec (P1)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.quantities import Amount, parse_amount
from controller.apimachinery.raw_json import NULL, text_of, value_at
from controller.kubevirt.annotations import (
    ADOPT_DISKS,
    IN_SERVICE,
    INDEX_SYSPREP,
    MAX_CLAIMED,
    MAX_UNHEALTHY,
    MIGRATE,
    MIN_READY,
    MOST_DISRUPTIVE,
    RECREATE,
    REPLACE_FINISHED,
    RESTART,
    REUSE,
    SCALE_IN,
    STANDBY,
    STANDBY_MODE,
    SUBSTITUTE_LOST_AFTER,
    TAKEOVER,
    is_marked,
)
from controller.kubevirt.limits import check_spec
from controller.kubevirt.pool_types import Pool, PoolSpec
from controller.kubevirt.vms import ONCE
from controller.pool.spec.partition import PartitionStep, parse_partition
from controller.pool.spec.policies import (
    Healing,
    ScaleIn,
    Strategy,
    Update,
    keeps_disks,
    parse_healing,
    parse_scale_in,
    parse_update,
)
from controller.pool.spec.template import FIELD, Template, parse_template
from controller.replicas.settings import Settings, read_settings, time_limit
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta, annotations_of


def asks_for_migrations(owner: Pool) -> bool:
    return is_marked(owner.metadata, MIGRATE)


def one_shot_problems(owner: Pool) -> Iterator[str]:
    """Yield why the pool cannot do what its annotations for one-shot pools ask for."""
    obstacle = _obstacle(owner.spec)
    if obstacle and is_marked(owner.metadata, REPLACE_FINISHED):
        yield f"annotation {REPLACE_FINISHED} has no effect: {obstacle}"
    elif SCALE_IN in annotations_of(owner.metadata) and (strategy := _strategy_of(owner.spec)) != ONCE:
        yield f"annotation {SCALE_IN} keeps every VM: {_unfit(strategy)}"


def standby_problems(owner: Pool) -> Iterator[str]:
    """Yield why the pool cannot have the standby VMs that it asks for, or not in the way that it asks for."""
    if STANDBY not in annotations_of(owner.metadata):
        return
    if obstacle := _obstacle_to_pauses(owner):
        yield f"annotation {STANDBY_MODE} counts as stopped: {obstacle}"
    if not _has_standbys(owner):
        strategy = quoted(_strategy_of(owner.spec))
        why = f"VMs with the run strategy {strategy} do not start again by themselves"
        yield f"annotation {STANDBY} has no effect: {why}"
    elif pauses_standbys(owner) and is_marked(owner.metadata, REUSE):
        yield f"annotation {REUSE} has no effect: {STANDBY_MODE} is paused, and a VM that has served is not paused"


def pauses_standbys(owner: Pool) -> bool:
    return annotations_of(owner.metadata).get(STANDBY_MODE) == "paused" and not _obstacle_to_pauses(owner)


def _obstacle_to_pauses(owner: Pool) -> str:
    """Return why no standby can rest paused. Its Pod exists, so autoscalers must know it by a label."""
    template = owner.spec.virtual_machine_template
    if annotations_of(owner.metadata).get(STANDBY_MODE) != "paused" or template is None:
        return ""
    if value_at(template.spec, "template", "metadata", "labels", IN_SERVICE) == NULL:
        return f"the VMI template has no label {IN_SERVICE}"
    probe = value_at(template.spec, "template", "spec", "livenessProbe")
    is_of_agent = probe == NULL or value_at(probe, "guestAgentPing") != NULL
    return "" if is_of_agent else "KubeVirt pauses no VM with a livenessProbe without guestAgentPing"


def asks_for_standbys(owner: ObjectMeta) -> bool:
    return STANDBY in annotations_of(owner)


def _has_standbys(owner: Pool) -> bool:
    """A VM of the template must start whenever it was stopped. A VM with Once has then finished, but can be paused."""
    template, strategy = owner.spec.virtual_machine_template, _strategy_of(owner.spec)
    is_on = template is not None and value_at(template.spec, "running") == b"true"
    return is_on or strategy in ("Always", "RerunOnFailure") or (strategy == ONCE and pauses_standbys(owner))


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


MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)


class Intent(Struct, frozen=True, kw_only=True):
    """A valid pool spec with the settings. The selector is not empty and matches the template's labels.

    - `steps`: the steps of the annotation `PARTITION`.
    - `min_ready_s`: the minimum number of seconds that a VMI must be ready to count as available.
    - `most_disruptive`: the value of the annotation `MOST_DISRUPTIVE`, or None.
    - `adopts_disks`: True if VMs may use any disk without an owner (P21).
    - `replaces_finished`: a setting of a one-shot pool (P25).
    - `max_unhealthy`: the number of VMs that may fail, or be lost, at the same time.
    - `substitute_lost_after`: the time after which a lost VM gets a substitute, or None.
    - `takeover`: the annotation `TAKEOVER`, or "".
    - `max_claimed`: the number of claimed VMs that others replace (P33).
    - `standbys`: the number of standby VMs. `pauses`: True if they rest paused. `reuses`: True if a scale-in may make
      some (P32).
    """

    replicas: int
    selector: Selector
    template: Template
    max_unavailable: Amount
    scale_in: ScaleIn
    update: Update
    healing: Healing | None
    settings: Settings
    steps: tuple[PartitionStep, ...] = ()
    min_ready_s: int = 0
    most_disruptive: str | None = None
    adopts_disks: bool = False
    replaces_finished: bool = False
    max_unhealthy: Amount = MAX_UNHEALTHY_DEFAULT
    substitute_lost_after: timedelta | None = None
    takeover: str = ""
    max_claimed: int = 0
    standbys: int = 0
    pauses: bool = False
    reuses: bool = False

    @property
    def heals(self) -> bool:
        """Return True if the controller replaces VMs that fail (P15)."""
        replaces_unready = self.settings.replace_unready_after is not None
        return self.healing is not None or replaces_unready or self.replaces_finished

    @property
    def forbids_restarts(self) -> bool:
        return self.most_disruptive not in (None, RESTART, RECREATE)

    @property
    def rolls_out(self) -> bool:
        """Return True if the pool updates all outdated VMs automatically, without update selectors and a partition."""
        chosen = self.update.selection
        selects = chosen.labels is not None or chosen.nodes is not None
        return self.update.strategy is Strategy.PROACTIVE and not selects and not self.steps

    @property
    def most_unavailable(self) -> int:
        """The number of VMs that may be unavailable at the same time."""
        return self.max_unavailable.of(self.replicas)


def parse_intent(owner: Pool) -> Intent | FieldError:
    spec, meta = owner.spec, owner.metadata
    checked = check_spec(spec, parse_template(spec, index_sysprep=is_marked(meta, INDEX_SYSPREP)), FIELD)
    if isinstance(checked, FieldError):
        return checked
    replicas, selector, template = checked
    amount, scale_in, update = _parse_max_unavailable(spec.max_unavailable), parse_scale_in(spec), parse_update(spec)
    healing = parse_healing(spec.autohealing)
    if isinstance(amount, FieldError):
        return amount
    if isinstance(scale_in, FieldError):
        return scale_in
    if isinstance(update, FieldError):
        return update
    if isinstance(healing, FieldError):
        return healing
    standbys = parse_amount(setting(meta, STANDBY) or "")
    return Intent(
        replicas=replicas,
        selector=selector,
        template=template,
        max_unavailable=amount,
        scale_in=scale_in,
        update=update,
        healing=healing,
        settings=read_settings(meta),
        steps=parse_partition(meta),
        min_ready_s=int(setting(meta, MIN_READY) or 0),
        most_disruptive=annotations_of(meta).get(MOST_DISRUPTIVE),
        adopts_disks=is_marked(meta, ADOPT_DISKS),
        replaces_finished=is_marked(meta, REPLACE_FINISHED) and not _obstacle(spec),
        max_unhealthy=parse_amount(setting(meta, MAX_UNHEALTHY) or "") or MAX_UNHEALTHY_DEFAULT,
        substitute_lost_after=time_limit(meta, SUBSTITUTE_LOST_AFTER),
        takeover=annotations_of(meta).get(TAKEOVER, ""),
        max_claimed=int(setting(meta, MAX_CLAIMED) or max(10 * replicas, 10)),
        standbys=standbys.ceiling(replicas) if standbys is not None and _has_standbys(owner) else 0,
        pauses=pauses_standbys(owner),
        reuses=is_marked(meta, REUSE) and not pauses_standbys(owner),
    )


def _parse_max_unavailable(value: int | str | None) -> Amount | FieldError:
    amount = parse_amount("100%" if value is None else value)
    if amount is not None:
        return amount
    return FieldError(f'spec.maxUnavailable is {quoted(str(value))}: it must be a number from 1, or "1%" to "100%"')
