"""What a set or pool should have now: the template that it rolls out, and the number of its members."""

from typing import Generic, TypeVar

from msgspec import Struct

from controller.kubevirt.limits import Template
from controller.replicas.notes import limited

T = TypeVar("T", bound=Template)


class Target(Struct, Generic[T], frozen=True, kw_only=True):
    """The template and the number, computed once for each snapshot.

    If the members return by themselves (P29), `template` is the one to which they return, and `rejected` is the one of
    the spec. If they cannot have it any more, both are the one of the spec, and `stranded` says why.

    The number has these parts:

    - `replicas`: the number in the spec.
    - `limit`: the maximum number of members, or 0 for no limit.
    - `young`: the members whose release waits (R2, P2).
    - `existing`: the other members, without as many as there are substitutes. Terminating members count for a pool, and
      not for a set.
    - `surge`: the members that a rolling update adds (R14).
    - `substitutes`: the members in place of lost ones (P28).
    """

    template: T
    rejected: T | None = None
    stranded: str = ""
    replicas: int
    limit: int = 0
    young: int = 0
    existing: int = 0
    surge: int = 0
    substitutes: int = 0

    @property
    def wanted(self) -> int:
        """The number of members beside the young ones. A young one takes the place of an additional one."""
        additional = self.surge + self.substitutes
        return max(self.regular, min(self.regular, self.replicas - self.young) + additional)

    @property
    def regular(self) -> int:
        """The wanted members without the additional ones. A young one still counts, so nothing replaces it, but no
        other member is deleted because of it.
        """
        beside_young = max(self.replicas - self.young, min(self.replicas, self.existing))
        return limited(beside_young, self.existing, self.limit)

    @property
    def kept(self) -> int:
        """The number of members that an eviction counts against: the regular ones, and the young ones (P27)."""
        return min(self.replicas, self.regular + self.young)
