"""Reads the objects that a command needs, and remembers what the user may not read.

The reader fills the same caches as the controller, so the controller's rules work on them. Each cache has the objects
of one namespace, or of all namespaces.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.indexes import owned_by
from controller.assembly import BUDGET_CACHE, MIGRATION_CACHE, Cache
from controller.config.modes import Mode
from controller.config.settings import Config, read_published
from controller.kinds import POOLS, Kind
from controller.kubevirt.annotations import MIGRATE, is_marked
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DISRUPTION_BUDGETS, MIGRATIONS, VMIS, VMS
from controller.kubevirt.vm_types import ControllerRevision
from controller.leaderelection.lease import SETTINGS, Lease
from controller.leaderelection.other_leader import leases_named
from controller.pool.members.machine import own_vmi
from controller.pool.members.situation import Situation as PoolSituation
from controller.pool.members.situation import situation_of as pool_situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.rollout.live import LiveChanges
from controller.pool.rules import PoolRules
from controller.preflight.rollout_strategy import rollout_of
from controller.preflight.versions import served_resource
from controller.replicas.kstatus import text_of_defect
from controller.replicas.revisions import hash_of_set_revision
from controller.replicas.settings import asks_for_budget, read_settings
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.runtime.actions import AnyResource
from controller.runtime.reconciler import Rules
from controller.takeover.discovery import Absent, Found, Installation, find_kubevirt, is_served, raw_items
from informers.errors import Forbidden, NotFound
from informers.meta import KubeObject, ObjectKey, annotations_of, is_controlled_by
from informers.resource import Resource
from informers.store import Store
from plugin import clock
from plugin.connection import Failed, Session
from plugin.subjects import Subject, did_you_mean
from plugin.views.edits import Document
from plugin.views.pools import situation_of_pool, visible_members
from plugin.views.sets import situation_of_set
from plugin.views.situation import Member, Situation, situation_from_status

T = TypeVar("T", bound=KubeObject)

LEASE_NAME: Final = "vmherd"


class Target(Struct, frozen=True):
    """One object of a command: its kind, the served resource, and the whole object as the server sent it."""

    kind: Kind[Any]
    resource: Resource[Any]
    owner: Any
    raw: bytes | msgspec.Raw

    @property
    def key(self) -> ObjectKey:
        key: ObjectKey = self.owner.metadata.key
        return key

    @property
    def document(self) -> Document:
        document: Document = msgspec.json.decode(self.raw)
        return document

    @property
    def wanted(self) -> int:
        return 1 if self.owner.spec.replicas is None else int(self.owner.spec.replicas)

    @property
    def path(self) -> str:
        return f"{self.kind.singular}.{self.resource.group}/{self.key.name}"

    def __str__(self) -> str:
        return f'{self.kind.short_names[0]} "{self.key.name}"'


class Reader:
    """Reads objects for one command. The field `missing` has one line for each resource that the user may not read.

    With `once`, the VMs of a namespace and the leases are read only once, for all objects of the command.
    """

    def __init__(self, client: Session, namespace: str, *, once: bool = False) -> None:
        self._client = client
        self._namespace = namespace
        self._once = once
        self._kubevirt: Installation | None = None
        self._published: tuple[Lease, ...] | None = None
        self._leases: dict[str, tuple[Lease, ...] | None] = {}
        self._resources: dict[tuple[str, str], Resource[Any]] = {}
        self._stores: dict[tuple[object, ...], Store[Any]] = {}
        self._seen: Mapping[AnyResource, Store[Any]] = {}
        """The caches of the last call of `rules`. A cache that the user may not read is empty."""

        self.missing: dict[str, str] = {}
        self.other_writers: dict[AnyResource, str] = {}
        """The evidence that KubeVirt's own controller works on the objects of a type, or ""."""

    def refusal(self, what: str = "") -> Failed:
        """Return the error that the user may not read what the command needs. The line begins with `what`."""
        (_, first), *others = self.missing.items()
        more = f"; the same for {', '.join(name for name, _ in others)}" if others else ""
        return Failed(f"error: {what}{first}{more}")

    async def resource(self, kind: Kind[Any], group: str) -> Resource[Any]:
        known = self._resources.get((kind.name, group))
        if known is None:
            known = self._resources[kind.name, group] = await served_resource(self._client, kind, group)
        return known

    async def visible_targets(self, subjects: Iterable[Subject], selector: str = "") -> list[Target]:
        """A type that the user may not read has no objects. Raise Forbidden if the user may read none of the types."""
        found: list[Target] = []
        refusals: list[Forbidden] = []
        is_readable = False
        for subject in subjects:
            try:
                found += await self._of(subject, selector)
                is_readable = True
            except Forbidden as error:
                # The server checks the permission before it looks whether it serves the type.
                resource = await self.resource(subject.kind, subject.group)
                if await is_served(self._client, resource.group_path, resource.plural):
                    refusals.append(error)
                    self.missing[subject.plural] = str(error)
        if refusals and not is_readable:
            raise refusals[0]
        return found

    async def check_served(self, subjects: Iterable[Subject]) -> None:
        names = []
        for subject in subjects:
            resource = await self.resource(subject.kind, subject.group)
            if await is_served(self._client, resource.group_path, resource.plural):
                return
            names.append(subject.plural)
        raise Failed(f"error: this cluster has no {names[0] if names else 'such type'}")

    async def some_targets(self, subjects: Iterable[Subject], selector: str) -> list[Target]:
        """Return the objects as `targets` does. Raise Failed if there are none."""
        subjects = tuple(subjects)
        found = await self.targets(subjects, selector)
        if not found:
            await self.check_served(subjects)
            where = f" in {self._namespace} namespace" if self._namespace else ""
            raise Failed(f"error: no resources found{where}")
        return found

    async def targets(self, subjects: Iterable[Subject], selector: str = "") -> list[Target]:
        """Return the named objects. A subject without a name stands for all objects that the selector matches.

        An object that does not exist or may not be read does not hide the others. Without others, the command ends.
        """
        subjects, found = tuple(subjects), list[Target]()
        if len(subjects) == 1:
            return await self._of(subjects[0], selector)
        for subject in subjects:
            with self._client.going_on(Failed, Forbidden):
                found += await self._of(subject, selector)
        if self._client.failures and not found:
            raise click.exceptions.Exit(1)
        return found

    async def _of(self, subject: Subject, selector: str) -> list[Target]:
        if subject.name:
            return [await self.target(subject)]
        resource = await self.resource(subject.kind, subject.group)
        raws = raw_items(self._client, resource.path(self._namespace), selector)
        return [Target(subject.kind, resource, resource.decode(raw), raw) async for raw in raws]

    async def target(self, subject: Subject) -> Target:
        """Return the named object. Raise Failed if there is none."""
        found = await self.find(subject)
        if found is None:
            resource = await self.resource(subject.kind, subject.group)
            hint = did_you_mean(subject.name, await self._client.names_of(resource, self._namespace))
            raise Failed(f'Error from server (NotFound): {resource.name} "{subject.name}" not found{hint}')
        return found

    async def find(self, subject: Subject) -> Target | None:
        """Return the named object, or None if there is none. Raise Failed if the cluster does not serve its type."""
        resource = await self.resource(subject.kind, subject.group)
        try:
            raw = await self._client.request("GET", resource.path(self._namespace, subject.name))
        except NotFound as error:
            if not error.reason:
                raise Failed(f"error: this cluster has no {subject.plural}") from error
            return None
        return Target(subject.kind, resource, resource.decode(raw), raw)

    async def again(self, target: Target) -> Target:
        raw = await self._client.request("GET", target.resource.path(*target.key))
        return Target(target.kind, target.resource, target.resource.decode(raw), raw)

    async def situation(self, target: Target) -> Situation:
        """If the user may not read all objects in the snapshot, use only the object's status."""
        return self.situation_in(target, await self.snapshot(target))

    def situation_in(self, target: Target, snapshot: Any) -> Situation:
        """Without a snapshot, use the object's status, and the VMs that the user may read."""
        kind, owner, vms = target.kind, target.owner, self._seen.get(VMS)
        if snapshot is not None:
            return situation_of(kind, target.resource.group, snapshot)
        members: tuple[Member, ...] = ()
        if kind is POOLS and vms is not None and VMS.name not in self.missing:
            found = [(vm, own_vmi(vm, self._seen[VMIS])) for vm in owned_by(owner.metadata, vms)]
            members = visible_members(owner, found, clock.now())
        return situation_from_status(kind, target.resource.group, owner, owner.status, members=members)

    async def pool(self, target: Target, what: str = "") -> PoolSituation:
        """Return a pool as its controller sees it. Raise Failed if the pool is invalid, or as `refusal` says."""
        snapshot = await self.snapshot(target)
        if snapshot is None:
            raise self.refusal(what)
        situation = pool_situation_of(snapshot)
        if isinstance(situation, FieldError):
            raise Failed(f"error: {target} is invalid: {situation.message}")
        return situation

    async def snapshot(self, target: Target, *, without: Collection[AnyResource] = ()) -> Any:
        """Return the controller's snapshot. Return None if an object may not be read, unless it is in `without`."""
        rules = await self.rules([target], target.key.namespace, without=without)
        return None if rules is None else snapshot_of(rules, target.key)

    async def revisions_of(self, target: Target) -> list[ControllerRevision] | None:
        """Return the revisions of a set with their data. Return None if the user may not read them. Raise ApiError."""
        found = []
        try:
            async for raw in raw_items(self._client, CONTROLLER_REVISIONS.path(target.key.namespace)):
                each = CONTROLLER_REVISIONS.decode(raw)
                if is_controlled_by(each.metadata, target.owner.metadata.uid) and hash_of_set_revision(each.metadata):
                    found.append(each)
        except Forbidden as error:
            self.missing[CONTROLLER_REVISIONS.name] = str(error)
            return None
        return found

    async def rules(
        self, targets: Sequence[Target], namespace: str, *, without: Collection[AnyResource] = ()
    ) -> Rules[Any] | None:
        """Return the rules for objects of one type, with caches that are read now. Return None if the user may not read
        all objects of these caches. A cache in `without` may be empty instead, and so may an optional cache, unless
        VMIs have returned to a revision (P29).
        """
        kind, resource, owners = targets[0].kind, targets[0].resource, [each.owner for each in targets]
        module = kind.module("wiring")
        has_returned = any(read_settings(each.metadata).returned[1] for each in owners)
        caches = module.CACHES
        stores = {cached: await self._store(cached, cache, namespace) for cached, cache in caches.items()}
        if not has_returned:
            without = [*without, *(cached for cached, cache in caches.items() if cache.is_optional)]
        self._seen = stores
        config = await self._config(kind, resource)
        budgets = config.disruption_budgets and any(asks_for_budget(each.metadata) for each in owners)
        migrates = config.migrations and any(is_marked(each.metadata, MIGRATE) for each in owners)
        needs = ((budgets, DISRUPTION_BUDGETS, BUDGET_CACHE), (migrates, MIGRATIONS, MIGRATION_CACHE))
        for is_needed, asked, cache in needs:
            store = await self._store(asked, cache, namespace) if is_needed else None
            # Without permission to read them, nothing is said about them.
            stores |= {asked: store} if store is not None and asked.name not in self.missing else {}
        if self.missing.keys() & {cached.name for cached in caches if cached not in without}:
            return None
        held: Store[Any] = Store(indexes=module.OWNER_CACHE.indexes)
        for owner in owners:
            held.apply(owner)
        rules: Rules[Any] = module.rules_of(config, resource, held, stores)
        return replace(rules, live=LiveChanges(self._rollout)) if isinstance(rules, PoolRules) else rules

    def _rollout(self) -> RolloutSettings:
        return rollout_of(self._kubevirt.kubevirts if isinstance(self._kubevirt, Found) else ())

    async def _config(self, kind: Kind[Any], resource: Resource[Any]) -> Config:
        """Return the settings that the leader of the API group has published on its lease. Without such a lease, the
        defaults count, with the mode that fits the cluster: `takeover` if KubeVirt serves the API group too. For a user
        who may not read leases, this mode would be a guess.
        """
        if self._kubevirt is None:
            self._kubevirt, self._published = await find_kubevirt(self._client), await self.leases()
        texts = (annotations_of(each.metadata).get(SETTINGS, "") for each in self._published or ())
        for config in map(read_published, texts):
            if config is not None and config.group_of(kind) == resource.group:
                return config
        is_there = self._published is not None and not isinstance(self._kubevirt, Absent)
        mode = Mode.TAKEOVER if is_there and resource.group == kind.group else Mode.STANDALONE
        return Config(mode=mode.value, disruption_budgets=True, migrations=True)

    async def leases(self, name: str = LEASE_NAME) -> tuple[Lease, ...] | None:
        """Return the leases of controllers, or None if the user may not read leases. Raise ApiError."""
        if name in self._leases:
            return self._leases[name]
        try:
            found: tuple[Lease, ...] | None = await leases_named(self._client, name)
        except Forbidden:
            # A tenant of one namespace may not read leases. The views say what is not known then.
            found = None
        if self._once:
            self._leases[name] = found
        return found

    async def _store(self, resource: Resource[Any], cache: Cache, namespace: str) -> Store[Any]:
        """Return a cache with the objects of a resource. If the user may not read them, the cache is empty."""
        # Another kind may need other indexes on the same objects.
        place = (resource, namespace, *cache.indexes)
        if place in self._stores:
            return self._stores[place]
        try:
            store = await cache.read(self._client, resource, namespace)
        except Forbidden as error:
            self.missing[resource.name], store = str(error), Store(indexes=cache.indexes)
        if self._once:
            self._stores[place] = store
        return store


def snapshot_of(rules: Rules[Any], key: ObjectKey) -> Any:
    """Return the snapshot of one object at the present time. All writes count as seen, because the caches are new."""
    return rules.take_snapshot(key, now=clock.now(), settled=True)


def situation_of(kind: Kind[Any], group: str, snapshot: Any) -> Situation:
    """If the snapshot is of another kind than pool or set, or if the rules fail, only its status is used."""
    told: dict[str, Any] = {}
    try:
        match snapshot:
            case PoolSnapshot():
                return situation_of_pool(snapshot)
            case SetSnapshot():
                return situation_of_set(snapshot)
    except Exception as error:  # the controller fails in the same way
        told = {"found": text_of_defect(error)}
    return situation_from_status(kind, group, snapshot.owner, snapshot.owner.status, **told)
