"""What the controller has to be allowed to do, as a value, and the question to the API server whether it is.

`permissions_needed` is the one list of verbs: the startup check asks for them, and the roles that are shipped hold
them and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
import structlog
from msgspec import Struct

from controller.config.modes import Mode
from controller.config.settings import Config, shared_with_kubevirt
from controller.kinds import KINDS, READ, accesses
from controller.kubevirt.resources import KUBEVIRT_GROUP
from controller.runtime.requests import REQUEST_TIMEOUT_S, Requests
from informers.errors import ApiError, Forbidden

__all__ = [
    "MissingPermission",
    "Permission",
    "check_permissions",
    "missing_permissions",
    "permissions_needed",
]

log = structlog.get_logger()


class Permission(Struct, frozen=True, order=True):
    """One verb on one resource. An empty namespace means all of them, an empty name any."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    subresource: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        """What it is about, as kubectl and RBAC messages spell it: `virtualmachineinstances.kubevirt.io`."""
        plural = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        place = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{plural}{'/' + self.subresource if self.subresource else ''}{named} {place}"


class MissingPermission(Struct, frozen=True):
    verbs: tuple[str, ...]
    subject: str
    user: str

    def __str__(self) -> str:
        return f"missing permission: {', '.join(self.verbs)} {self.subject}; a role has to give it to {self.user}"


def permissions_needed(config: Config) -> tuple[Permission, ...]:
    """Exactly what the controller does with this configuration, no more: the RBAC rules it runs under."""
    if config.observe:
        return tuple(_reads(config)) + check_permissions(config) + scrape_permissions(config)
    owners = [(config.group_of(kind), kind) for kind in KINDS]
    everywhere = [
        *(permission for group, kind in owners for permission in _owner_permissions(group, kind.plural)),
        *((group, kind.plural, "", verb) for group, kind in owners for verb in kind.owner_verbs),
        *((each.resource.group, each.resource.plural, "", verb) for each in accesses() for verb in each.verbs),
        *(("", "events", "", verb) for verb in ("create", "patch")),
    ]
    work = tuple(
        Permission(group=group, resource=resource, subresource=subresource, verb=verb, namespace=namespace)
        for namespace in config.namespaces
        for group, resource, subresource, verb in everywhere
    )
    lease = _lease_permissions(config) if config.leader_elect else ()
    return work + check_permissions(config) + scrape_permissions(config) + lease


def _reads(config: Config) -> Iterable[Permission]:
    """What the caches are filled from: all that an onlooker needs."""
    kinds = [(config.group_of(kind), kind.plural) for kind in KINDS]
    kinds += [(each.resource.group, each.resource.plural) for each in accesses() if each.is_cached]
    for namespace in config.namespaces:
        for group, resource in kinds:
            yield from (Permission(group, resource, verb, namespace) for verb in ("list", "watch"))


def check_permissions(config: Config) -> tuple[Permission, ...]:
    """What shows whether KubeVirt's own loops rest. Only a takeover builds on that: the others do without a KubeVirt
    that shares their kinds, and do not start where there is one that they may not look at.
    """
    if config.mode != Mode.TAKEOVER or not config.second_writer_check or not shared_with_kubevirt(config):
        return ()
    namespace = config.kubevirt_namespace
    return (
        Permission(KUBEVIRT_GROUP, "kubevirts", "list", namespace),
        Permission("apps", "deployments", "get", namespace, name="virt-controller"),
    )


def scrape_permissions(config: Config) -> tuple[Permission, ...]:
    """What tells who may read the metrics: whose a token is, and what that user may do. Nobody's objects are asked
    for, and yet only a ClusterRole can allow it.
    """
    if not config.metrics_secure:
        return ()
    return (
        Permission("authentication.k8s.io", "tokenreviews", "create"),
        Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
    )


def _owner_permissions(group: str, plural: str) -> Iterable[tuple[str, str, str, str]]:
    """What is asked of a kind that is reconciled."""
    yield from ((group, plural, "", verb) for verb in READ)
    yield group, plural, "status", "patch"
    # An owner reference with blockOwnerDeletion needs this where OwnerReferencesPermissionEnforcement is on.
    yield group, plural, "finalizers", "update"


def _lease_permissions(config: Config) -> tuple[Permission, ...]:
    def lease(verb: str, name: str) -> Permission:
        namespace = config.leader_election_namespace
        return Permission(group="coordination.k8s.io", resource="leases", verb=verb, namespace=namespace, name=name)

    # RBAC cannot bind a create to a name: the request for it has none.
    return (lease("create", ""), *(lease(verb, config.leader_election_id) for verb in ("get", "patch")))


class _Review(Struct, frozen=True):
    class Status(Struct, frozen=True, rename="camel"):
        class User(Struct, frozen=True):
            username: str = ""

        allowed: bool = False
        user_info: User = User()

    status: Status = Status()


_decode_review = msgspec.json.Decoder(_Review).decode


async def missing_permissions(client: Requests, needed: Iterable[Permission]) -> tuple[MissingPermission, ...]:
    """Ask the API server for each permission, all at once; one line tells all missing verbs of a resource.

    Raises ApiError where it cannot say.
    """
    needed = tuple(needed)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_is_allowed(client, permission)) for permission in needed]
    answers = [task.result() for task in asked]
    for answer in answers:
        if isinstance(answer, ApiError):
            raise answer
    verbs: dict[str, list[str]] = {}
    for permission, allowed in zip(needed, answers, strict=True):
        if not allowed:
            verbs.setdefault(permission.subject, []).append(permission.verb)
    if not verbs:
        return ()
    user = await _whoami(client)
    return tuple(MissingPermission(tuple(missing), subject, user) for subject, missing in verbs.items())


async def _is_allowed(client: Requests, permission: Permission) -> bool | ApiError:
    """Whether we have it. A failure is a value, so that one question does not cut off the others."""
    attributes = {
        "namespace": permission.namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
        "name": permission.name,
    }
    try:
        review = await _review(
            client, "authorization.k8s.io/v1", "SelfSubjectAccessReview", {"resourceAttributes": attributes}
        )
    except Forbidden as error:
        # A cluster that lets nobody ask about himself says nothing of what it allows.
        log.warning("cannot check permissions", why=str(error))
        return True
    except ApiError as error:
        return error
    return review.status.allowed


async def _whoami(client: Requests) -> str:
    """Our name in the API server's eyes, for a person who is to give it a role."""
    try:
        review = await _review(client, "authentication.k8s.io/v1", "SelfSubjectReview", {})
    except ApiError:
        return "this user"
    return review.status.user_info.username or "this user"


async def _review(client: Requests, api_version: str, kind: str, spec: Mapping[str, object]) -> _Review:
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
    path = f"/apis/{api_version}/{kind.lower()}s"
    return _decode_review(await client.request("POST", path, body=body, timeout_s=REQUEST_TIMEOUT_S))
