"""What a new spec would do to each VM of a pool and to each VMI of a set: the effect, the turn, and what holds it.

The controller's own functions decide this. Their input is the present snapshot with the new set or pool.
"""

from collections.abc import Iterable, Mapping
from itertools import compress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import MAX_CLAIMED, PARTITION, ROLLING_UPDATE, is_protected
from controller.kubevirt.delicate import reason_to_keep_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import is_updated
from controller.pool.members.situation import Situation, situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.rollout.effects import Effect, effect_of
from controller.pool.rollout.live import most_live_changes
from controller.pool.rollout.steps import PendingStep, pending_step
from controller.pool.rollout.update import in_turn, pending_steps
from controller.pool.standby import is_fresh
from controller.replicas.conditions import counted
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.situation import situation_of as set_situation
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.template import is_updated as is_updated_vmi
from controller.runtime.actions import Plan
from informers.meta import annotations_of
from plugin.views.history import REPLACE
from plugin.views.scaling import ScalePreview, preview, preview_lines
from plugin.views.steering import Refused
from plugin.views.tables import table

LEAVES: Final = "leaves"
RESTS: Final = "rests"


class Fate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What happens to one VM or VMI. `turn` is its place in the order of the update, or 0. `held` says why it must wait
    or stays as it is. `because` says why KubeVirt does not make the change live. `lost_disks` are deleted with it, and
    `grown_disks` are the new sizes of disks that grow.
    """

    name: str
    effect: str
    turn: int = 0
    held: str = ""
    because: str = ""
    lost_disks: tuple[str, ...] = ()
    grown_disks: Mapping[str, str] = {}


class Forecast(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a new spec would do. `pace` is the number of VMs at a time. `held` is what the controller's next plan leaves
    out, such as an update while the pool is paused. `standby` and `claims` are about the VMs beside the wanted
    ones.
    """

    members: tuple[Fate, ...]
    pace: str
    scale: ScalePreview
    held: str = ""
    standby: str = ""
    claims: str = ""


def forecast_of(snapshot: PoolSnapshot | SetSnapshot) -> Forecast:
    """Return what the controller would do with the object in the snapshot. Raise Refused if its spec is invalid."""
    return _of_pool(snapshot) if isinstance(snapshot, PoolSnapshot) else _of_set(snapshot)


def forecast_lines(forecast: Forecast, *, width: int = 0) -> list[str]:
    rows = [(each.name, str(each.turn or "-"), each.effect, _why(each)) for each in forecast.members]
    lines = table(("NAME", "TURN", "EFFECT", "WHY"), rows, width=width, wraps=True) if rows else []
    scale = preview_lines(replace(forecast.scale, held=""))
    texts = {"standby": forecast.standby, "claims": forecast.claims, "held": forecast.held}
    more = [f"{name}: {text}" for name, text in texts.items() if text]
    return [*lines, *([f"pace: {forecast.pace}"] if any(each.turn for each in forecast.members) else []), *scale, *more]


def _why(fate: Fate) -> str:
    texts = [f"held: {fate.held}"] if fate.held else [fate.because] if fate.because else []
    texts += [f"deletes its disks {', '.join(fate.lost_disks)}"] if fate.lost_disks else []
    texts += [f"disk {name} grows to {size}" for name, size in fate.grown_disks.items()]
    return "; ".join(texts)


def _of_pool(snapshot: PoolSnapshot) -> Forecast:
    situation, scale = situation_of(snapshot), preview(snapshot)
    if isinstance(situation, FieldError):
        raise _refused(situation)
    places = {each.machine.metadata.uid: place for place, each in enumerate(in_turn(pending_steps(situation)))}
    machines = sorted(
        situation.members,
        key=lambda each: (places.get(each.metadata.uid, len(places)), snapshot.rank_of(each)),
    )
    pace = (
        f"at most {situation.most_unavailable} of {situation.target.replicas} unavailable at a time, "
        f"and at most {most_live_changes(situation)} in a live change"
    )
    found = _forecast((_fate(situation, each) for each in machines), pace, scale, plan_pool(snapshot))
    gone = frozenset((*scale.waking, *(each.name for each in scale.leaving)))
    standby = _standby_text(situation, gone, len(scale.resting))
    return replace(found, standby=standby, claims=_claims_text(situation))


def _fate(situation: Situation, machine: Machine) -> Fate:
    name, step = machine.metadata.name, pending_step(situation, machine)
    if is_deleting(machine.vm):
        return Fate(name=name, effect=LEAVES)
    if step is None:
        held = "" if is_updated(situation.revisions, machine) else "it stays outdated until its user restarts it"
        return Fate(name=name, effect=Effect.NOTHING, held=held)
    return Fate(
        name=name,
        effect=effect_of(step),
        held=_held(situation, step),
        because=step.obstacle,
        lost_disks=step.lost_disks,
        grown_disks={name: size for name, (_, size) in step.sizes.items()},
    )


def _standby_text(situation: Situation, gone: frozenset[str], resting: int) -> str:
    """Return how many standbys the pool wants, and what happens to them. `gone` are the names of those that are woken
    or deleted, and `resting` is the number of VMs that become standbys.
    """
    wanted, asked = situation.target.standbys, situation.intent.standbys
    if not asked:
        return ""
    staying = situation.standby.where(lambda each: not is_deleting(each.vm) and each.metadata.name not in gone)
    outdated = len(staying.where(lambda each: not is_fresh(situation, each)))
    missing = max(wanted - len(staying) - resting, 0)
    rest, mode = "rests" if wanted == 1 else "rest", "paused" if situation.intent.pauses else "stopped"
    texts = [
        f"{counted(wanted, 'VM', 'VMs')} beside the {situation.target.replicas} wanted {rest} {mode}",
        f"{missing} would be created, when no wanted VM is missing" if missing else "",
        f"{outdated} {'is' if outdated == 1 else 'are'} outdated, and would be made again" if outdated else "",
        f"{asked - wanted} more would have no room below --max-replicas" if asked > wanted else "",
    ]
    return "; ".join(filter(None, texts))


def _claims_text(situation: Situation) -> str:
    """Return how many VMs are claimed, and how many of them the pool replaces, or "" if it says nothing of claims."""
    claimed, limit = len(situation.claimed), situation.intent.max_claimed
    if not claimed and MAX_CLAIMED not in annotations_of(situation.pool):
        return ""
    present = f"{counted(claimed, 'VM', 'VMs')} claimed, and left alone" if claimed else "no VM is claimed"
    return f"{present}; others take the place of at most {limit} ({MAX_CLAIMED})"


def _held(situation: Situation, step: PendingStep) -> str:
    """Return why the update of the VM waits for more than its turn, or ""."""
    if not situation.may_update(step.machine):
        return f"spec.updateStrategy {situation.intent.update.strategy} leaves it out"
    if not situation.is_above_partition(step.machine):
        later = "it waits for a later step: " if situation.is_in_steps(step.machine) else ""
        return f"{later}{PARTITION} is {annotations_of(situation.pool).get(PARTITION)}"
    return step.reason


def _of_set(snapshot: SetSnapshot) -> Forecast:
    situation, now = set_situation(snapshot), snapshot.now
    if isinstance(situation, FieldError):
        raise _refused(situation)
    active, rollout, template = situation.active, situation.rollout, situation.template
    protected = active.where(lambda vmi: is_protected(vmi.metadata))

    def fate(vmi: VirtualMachineInstance) -> Fate:
        if is_updated_vmi(vmi, template):
            return Fate(name=vmi.metadata.name, effect=Effect.NOTHING)
        kept = f"without a valid annotation {ROLLING_UPDATE}, it keeps its template" if rollout is None else ""
        return Fate(name=vmi.metadata.name, effect=REPLACE, held=kept or reason_to_keep_vmi(vmi, now))

    ranked = (*rank_for_removal(active, now), *sorted(protected, key=lambda vmi: vmi.metadata.name))
    limits = (rollout.max_unavailable, rollout.max_surge) if rollout is not None else (0, 0)
    pace = f"at most {limits[0]} of {situation.target.replicas} not ready and {limits[1]} additional at a time"
    return _forecast(map(fate, ranked), pace, preview(snapshot), plan_set(snapshot))


def _refused(error: FieldError) -> Refused:
    return Refused(f"the new spec is invalid: {error.message}")


def _forecast(fates: Iterable[Fate], pace: str, scale: ScalePreview, plan: Plan) -> Forecast:
    """Return the forecast of VMs in the order of their updates. The VMs without a turn come last."""
    ends = {**dict.fromkeys(scale.resting, RESTS), **{each.name: LEAVES for each in scale.leaving}}
    known = [Fate(name=each.name, effect=ends[each.name]) if each.name in ends else each for each in fates]
    free = [not each.held and each.effect not in (LEAVES, RESTS, Effect.NOTHING) for each in known]
    turns = (replace(each, turn=turn) for turn, each in enumerate(compress(known, free), start=1))
    others = (each for each, is_free in zip(known, free, strict=True) if not is_free)
    return Forecast(members=(*turns, *others), pace=pace, scale=scale, held=plan.held)
