"""A case of the conformance suite, its result, and the exceptions that end a case early."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

Document: TypeAlias = dict[str, Any]
B = TypeVar("B")
Check: TypeAlias = Callable[[B], Awaitable[None]]
"""The function of a case. Its argument is the namespace of the case. The function raises Unmet or Skip."""


class Kind(StrEnum):
    SETS = "sets"
    POOLS = "pools"


class Origin(StrEnum):
    KUBEVIRT = "kubevirt"
    VMHERD = "vmherd"


class Requirement(StrEnum):
    """What a case needs from the cluster, or else it is skipped with the reason in `MISSING`."""

    CDI = "cdi"
    EXPANSION = "expansion"
    LIVE = "live"
    SIMULATOR = "simulator"


MISSING = {
    Requirement.CDI: "the cluster does not serve DataVolumes (CDI)",
    Requirement.EXPANSION: "the cluster has no default StorageClass with allowVolumeExpansion",
    Requirement.LIVE: "no KubeVirt object has vmRolloutStrategy LiveUpdate, or it cannot be read",
    Requirement.SIMULATOR: "only the simulator of vmherd's sandbox can produce this state",
}


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    DIFFERS = "differs"
    """The case failed because another controller reconciles the kind, and it is about a behaviour of vmherd."""


class Case(Struct, frozen=True, kw_only=True):
    """The check of one behaviour. `id` never changes. `rules` has the numbers of the checked rules in docs/rules.md."""

    id: str
    title: str
    kind: Kind
    rules: str
    origin: Origin
    requires: tuple[Requirement, ...]
    check: Check[Any]


class Result(Struct, frozen=True, kw_only=True):
    """The result of a case, with the `reason` of a skip, or with what was `expected` and `seen` in a failure."""

    case: Case
    status: Status
    seconds: float = 0.0
    expected: str = ""
    seen: str = ""
    reason: str = ""

    @property
    def detail(self) -> str:
        """One line that explains the status, or "" for a case that passed."""
        return f"expected {self.expected}; seen: {self.seen}" if self.expected else self.reason


class Unmet(Exception):
    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; seen: {seen}")
        self.expected = expected
        self.seen = seen


class Skip(Exception):
    """The case cannot be checked on this cluster. `str()` is the reason."""


class Cases(Generic[B]):
    """The cases of one module, in the order of their definition. A module can be about both kinds.

    The name of a function and the kind are the id of its case, and the docstring is the title. So `default_replicas` is
    the case `set-default-replicas`. In a docstring for both kinds, `{kind}` becomes set or pool, and `{member}` becomes
    VMI or VM. `B` is the type of the argument that each check gets, for example `Pools`.
    """

    def __init__(self, *kinds: Kind) -> None:
        self._kinds = kinds
        self._cases: list[Case] = []

    def of(self, kind: Kind) -> list[Case]:
        return [case for case in self._cases if case.kind is kind]

    def add(
        self, *rules: str, origin: Origin = Origin.KUBEVIRT, requires: tuple[Requirement, ...] = ()
    ) -> Callable[[Check[B]], Check[B]]:
        """Return a decorator that adds a function as a case of each kind. `rules` are the rules of each kind."""

        def added(check: Check[B]) -> Check[B]:
            name, text = getattr(check, "__name__", ""), " ".join((check.__doc__ or "").split()).removesuffix(".")
            for kind, checked in zip(self._kinds, rules, strict=True):
                word, member = ("set", "VMI") if kind is Kind.SETS else ("pool", "VM")
                id, title = f"{word}-{name.replace('_', '-')}", text.format(kind=word, member=member)
                case = Case(id=id, title=title, kind=kind, rules=checked, origin=origin, requires=requires, check=check)
                self._cases.append(case)
            return check

        return added
