"""What a replica set knows before it decides: its snapshot, its parsed spec, its VMIs by state, and their failures."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.vmis import is_active, is_deleting, is_spent
from controller.replicas.release_delay import wanted_beside
from controller.replicas.replica_limit import limited
from controller.replicas.rollback import after_return, usable_template
from controller.replicaset.back_off import BackOff, Creates, choose_creates, find_back_off
from controller.replicaset.intent import Intent
from controller.replicaset.rolling_update import surge_of
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import Template, template_in
from controller.replicaset.traits import VMIs


class Situation(Struct, frozen=True, kw_only=True):
    """The input of all decisions about a valid set.

    `active` and `spent` are the VMIs that are not being deleted (R3). Active VMIs count towards the wanted number.
    Spent VMIs have finished, or their state is unknown. They do not count and will be deleted. `creates` are the
    missing VMIs that may be created now (R4a). `surge` is the number of VMIs that a rolling update adds to the wanted
    VMIs (R14).
    """

    snapshot: Snapshot
    intent: Intent
    active: VMIs
    spent: VMIs
    back_off: BackOff
    creates: Creates
    surge: int = 0

    @property
    def missing(self) -> int:
        """The number of VMIs to create. For a surplus, it is negative."""
        return self.intent.wanted + self.surge - len(self.active)

    @property
    def has_wanted(self) -> bool:
        """True if all wanted VMIs are active. Then only the VMIs of a surge can be missing."""
        return len(self.active) >= self.intent.wanted


def usable_in(snapshot: Snapshot, intent: Intent) -> Callable[[str], Template | str]:
    """Return a function that reads the template of a revision, or says why VMIs cannot get it (P29)."""
    revisions, owner = snapshot.revisions, snapshot.owner
    return lambda name: usable_template(name, revisions, lambda each: template_in(owner, each), intent.selector)


def situation_of(snapshot: Snapshot, intent: Intent, members: VMIs, *, young: int = 0) -> Situation:
    """Return the situation of a set with these members. `young` is the number of members whose release waits."""
    active, now = members.where(is_active), snapshot.now
    wanted = limited(wanted_beside(young, intent.replicas, len(active)), len(active), snapshot.max_replicas)
    intent = replace(intent, wanted=wanted)
    usable = usable_in(snapshot, intent)
    intent = after_return(intent, snapshot.owner.metadata, intent.template.hash, usable)
    spent = members.where(lambda vmi: is_spent(vmi) and not is_deleting(vmi))
    back_off = find_back_off(now, intent.template, active, spent)
    surge = surge_of(snapshot, intent, active)
    creates = choose_creates(back_off, wanted + surge - len(active), burst=snapshot.burst, now=now)
    return Situation(
        snapshot=snapshot, intent=intent, active=active, spent=spent, back_off=back_off, creates=creates, surge=surge
    )
