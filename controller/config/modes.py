"""Who reconciles what, where KubeVirt may be doing it too: the modes, and the groups that each of them works on.

standalone   nobody else reconciles KubeVirt's groups: we do
takeover     KubeVirt is there, and its two loops were told to rest: we reconcile its groups in their place
alongside    KubeVirt stays as it is: we serve the same kinds under groups of our own
auto         standalone where there is no KubeVirt, alongside where there is one; never takeover
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

REPLICA_SETS: Final = "virtualmachineinstancereplicasets"
POOLS: Final = "virtualmachinepools"


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"


class Groups(NamedTuple):
    """The API groups of the two kinds."""

    replicasets: str
    pools: str


KUBEVIRT_GROUPS: Final = Groups("kubevirt.io", "pool.kubevirt.io")
OWN_GROUPS: Final = Groups("vmherd.dev", "pool.vmherd.dev")


def groups_of(mode: str) -> Groups:
    """The groups that a mode works on. `auto` has KubeVirt's until it is known which mode that comes to."""
    return OWN_GROUPS if mode == Mode.ALONGSIDE else KUBEVIRT_GROUPS


def mode_beside(*, kubevirt: bool) -> Mode:
    """What `auto` comes to."""
    return Mode.ALONGSIDE if kubevirt else Mode.STANDALONE


def shared_with_kubevirt(groups: Groups) -> tuple[str, ...]:
    """The kinds that KubeVirt's own loops would work on as well, by the names of their resources."""
    kinds = zip((REPLICA_SETS, POOLS), groups, KUBEVIRT_GROUPS, strict=True)
    return tuple(f"{plural}.{group}" for plural, group, theirs in kinds if group == theirs)
