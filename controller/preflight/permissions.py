"""Lists the permissions that the controller needs, and checks whether the API server grants these permissions.

`permissions_needed` is the only list of the permissions. Before the controller starts, the check asks the API server
for each permission in the list. The roles in the chart and in the manifests contain exactly the same permissions.
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
from controller.runtime.execute.requests import REQUEST_TIMEOUT_S, Requests
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
    """The permission for one verb on one resource.

    If `namespace` or `name` is empty, all namespaces or names are allowed.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    subresource: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        """Return the resource and the namespace as text, for example `pods in namespace default`."""
        plural = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        place = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{plural}{'/' + self.subresource if self.subresource else ''}{named} {place}"


class MissingPermission(Struct, frozen=True):
    """The verbs on one resource that the API server does not allow to this user."""

    verbs: tuple[str, ...]
    subject: str
    user: str

    def __str__(self) -> str:
        return f"missing permission: {', '.join(self.verbs)} {self.subject}; grant it to {self.user} with a role"


def permissions_needed(config: Config) -> tuple[Permission, ...]:
    """Return exactly the permissions for all requests that the controller sends with this configuration."""
    if config.observe:
        return tuple(_reads(config)) + check_permissions(config) + scrape_permissions(config)
    owners = [(config.group_of(kind), kind) for kind in KINDS]
    everywhere = [
        *(permission for group, kind in owners for permission in _owner_permissions(group, kind.plural)),
        *((group, kind.plural, "", verb) for group, kind in owners for verb in kind.owner_verbs),
        *(
            (each.resource.group, each.resource.plural, each.subresource, verb)
            for each in accesses()
            for verb in each.verbs
        ),
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
    """Yield the permissions to list and watch the cached kinds.

    With `--observe`, the controller writes no objects, so it needs no other permissions for objects.
    """
    kinds = [(config.group_of(kind), kind.plural) for kind in KINDS]
    kinds += [(each.resource.group, each.resource.plural) for each in accesses() if each.is_cached]
    for namespace in config.namespaces:
        for group, resource in kinds:
            yield from (Permission(group, resource, verb, namespace) for verb in ("list", "watch"))


def check_permissions(config: Config) -> tuple[Permission, ...]:
    """Return the permissions to check whether KubeVirt's own loops are stopped.

    Only the mode `takeover` needs these permissions. In other modes, KubeVirt usually is not installed or has other API
    groups.
    """
    if config.mode != Mode.TAKEOVER or not config.second_writer_check or not shared_with_kubevirt(config):
        return ()
    namespace = config.kubevirt_namespace
    return (
        Permission(KUBEVIRT_GROUP, "kubevirts", "list", namespace),
        Permission("apps", "deployments", "get", namespace, name="virt-controller"),
    )


def scrape_permissions(config: Config) -> tuple[Permission, ...]:
    """Return the permissions to check the readers of the metrics.

    The controller asks the API server to which user a token belongs, and whether this user may read the metrics.
    TokenReviews and SubjectAccessReviews have no namespace, so only a ClusterRole can grant these permissions.
    """
    if not config.metrics_secure:
        return ()
    return (
        Permission("authentication.k8s.io", "tokenreviews", "create"),
        Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
    )


def _owner_permissions(group: str, plural: str) -> Iterable[tuple[str, str, str, str]]:
    """Yield the permissions for the objects of a reconciled kind.

    Each permission is a tuple of group, resource, subresource and verb.
    """
    yield from ((group, plural, "", verb) for verb in READ)
    yield group, plural, "status", "patch"
    # If OwnerReferencesPermissionEnforcement is enabled, only users with this permission may set blockOwnerDeletion.
    yield group, plural, "finalizers", "update"


def _lease_permissions(config: Config) -> tuple[Permission, ...]:
    def lease(verb: str, name: str) -> Permission:
        namespace = config.leader_election_namespace
        return Permission(group="coordination.k8s.io", resource="leases", verb=verb, namespace=namespace, name=name)

    # RBAC cannot limit the verb create to one name, because the path of a create request contains no name.
    return (lease("create", ""), *(lease(verb, config.leader_election_id) for verb in ("get", "patch")))


ASKED_AT_ONCE = 20
"""The maximum number of questions to the API server at the same time.

Without this limit, many watched namespaces would cause thousands of parallel questions, each with its own connection.
"""


class _Review(Struct, frozen=True):
    class Status(Struct, frozen=True, rename="camel"):
        class User(Struct, frozen=True):
            username: str = ""

        allowed: bool = False
        user_info: User = User()

    status: Status = Status()


_decode_review = msgspec.json.Decoder(_Review).decode


async def missing_permissions(client: Requests, needed: Iterable[Permission]) -> tuple[MissingPermission, ...]:
    """Ask the API server for all permissions, at most `ASKED_AT_ONCE` at once, and return the missing permissions.

    The result has one MissingPermission for each resource, with all missing verbs. If the API server does not answer,
    raise ApiError.
    """
    needed = tuple(needed)
    slots = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(permission: Permission) -> bool | ApiError:
        async with slots:
            return await _is_allowed(client, permission)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(permission)) for permission in needed]
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
    """Return True if the controller has the permission.

    Return True also if the controller may not ask for its permissions, because the check is then impossible. An
    ApiError is returned instead of raised, so that the error does not cancel the concurrent requests.
    """
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
        # If users have no permission to ask for their own permissions, the check is impossible. The controller starts
        # anyway.
        log.warning("cannot check permissions", why=str(error))
        return True
    except ApiError as error:
        return error
    return review.status.allowed


async def _whoami(client: Requests) -> str:
    """Return the name of the controller's user, or "this user" if the name is unknown.

    The name tells the administrator which user needs the missing permissions.
    """
    try:
        review = await _review(client, "authentication.k8s.io/v1", "SelfSubjectReview", {})
    except ApiError:
        return "this user"
    return review.status.user_info.username or "this user"


async def _review(client: Requests, api_version: str, kind: str, spec: Mapping[str, object]) -> _Review:
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
    path = f"/apis/{api_version}/{kind.lower()}s"
    return _decode_review(await client.request("POST", path, body=body, timeout_s=REQUEST_TIMEOUT_S))
