"""What a replica set knows before it decides: snapshot, spec, target, VMIs by state, and their failures."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.vmis import is_active, is_deleting, is_spent
from controller.replicas.notes import limited
from controller.replicas.rollback import rolled_out, usable_template
from controller.replicas.target import Target
from controller.replicaset.back_off import BackOff, Creates, choose_creates, find_back_off
from controller.replicaset.claims import Claims, choose_claims
from controller.replicaset.intent import Intent, Rollout, parse_intent
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import Template, is_updated, template_in
from controller.replicaset.traits import VMIs, group_vmis
from informers.memo import LastResult


class Situation(Struct, frozen=True, kw_only=True):
    """The input of all decisions about a valid set.

    `active` VMIs count towards the wanted number, and adopted ones already do. `spent` ones will be deleted (R3). VMIs
    that are being deleted are neither. `creates` are the missing VMIs that may be created now (R4a). `rollout` has the
    limits of the rolling update, or None (R14).
    """

    snapshot: Snapshot
    intent: Intent
    target: Target[Template]
    claims: Claims
    active: VMIs
    spent: VMIs
    rollout: Rollout | None
    back_off: BackOff
    creates: Creates

    @property
    def template(self) -> Template:
        return self.target.template

    @property
    def missing(self) -> int:
        """The number of VMIs to create. For a surplus, it is negative."""
        return self.target.wanted - len(self.active)

    @property
    def has_regular(self) -> bool:
        """True if all wanted VMIs are active. Then only the VMIs of a surge can be missing."""
        return len(self.active) >= self.target.regular


def usable_in(snapshot: Snapshot, intent: Intent) -> Callable[[str], Template | str]:
    """Return a function that reads the template of a revision, or says why VMIs cannot get it (P29)."""
    revisions, owner = snapshot.revisions, snapshot.owner
    return lambda name: usable_template(name, revisions, lambda each: template_in(owner, each), intent.selector)


def rolled_out_in(snapshot: Snapshot, intent: Intent) -> tuple[Template, Template | None, str]:
    return rolled_out(intent.settings, intent.template, intent.template.hash, usable_in(snapshot, intent))


@LastResult
def situation_of(snapshot: Snapshot) -> Situation | FieldError:
    intent, now = parse_intent(snapshot.owner), snapshot.now
    if isinstance(intent, FieldError):
        return intent
    claims = choose_claims(snapshot, intent)
    members = claims.kept + group_vmis(filter(is_active, claims.adopted))
    active = members.where(is_active)
    spent = members.where(lambda vmi: is_spent(vmi) and not is_deleting(vmi))
    template, rejected, stranded = rolled_out_in(snapshot, intent)
    target = Target(
        template=template,
        rejected=rejected,
        stranded=stranded,
        replicas=intent.replicas,
        limit=snapshot.max_replicas,
        young=len(claims.releases.held),
        existing=len(active),
    )
    rollout = intent.limits_at(target.regular)
    target = replace(target, surge=_surge_of(snapshot, target, rollout, active))
    back_off = find_back_off(now, template, active, spent)
    return Situation(
        snapshot=snapshot,
        intent=intent,
        target=target,
        claims=claims,
        active=active,
        spent=spent,
        rollout=rollout,
        back_off=back_off,
        creates=choose_creates(back_off, target.wanted - len(active), burst=snapshot.burst, now=now),
    )


def _surge_of(snapshot: Snapshot, target: Target[Template], rollout: Rollout | None, active: VMIs) -> int:
    """Return how many VMIs the set may have beside the wanted ones: each outdated one keeps the VMI made for it."""
    wanted = target.regular
    if rollout is None or not rollout.max_surge or not wanted:
        return 0
    outdated = active.where(lambda vmi: not is_updated(vmi, target.template) and not is_protected(vmi.metadata))
    deletable = outdated.where(lambda vmi: not reason_to_spare_vmi(vmi, snapshot.now))
    present = min(len(active) - wanted, len(outdated))
    surge = min(rollout.max_surge, max(len(deletable), present))
    return max(limited(wanted + surge, len(active), snapshot.max_replicas) - wanted, 0)
