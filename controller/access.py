"""Asks the API server which permissions this program has."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
import structlog
from msgspec import Struct

from controller.runtime.execute.requests import REQUEST_TIMEOUT_S, Requests
from informers.errors import ApiError, Forbidden

log = structlog.get_logger()


class Permission(Struct, frozen=True, order=True):
    """The attributes in a review. If `namespace` or `name` is empty, all namespaces or names are allowed."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    subresource: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        plural = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        place = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{plural}{'/' + self.subresource if self.subresource else ''}{named} {place}"


class MissingPermission(Struct, frozen=True):
    verbs: tuple[str, ...]
    subject: str
    user: str

    def __str__(self) -> str:
        return f"missing permission: {', '.join(self.verbs)} {self.subject}; grant it to {self.user} with a role"


TOKEN_REVIEWS, ACCESS_REVIEWS = "authentication.k8s.io/v1", "authorization.k8s.io/v1"

ASKED_AT_ONCE = 20
"""Without this limit, many watched namespaces would cause thousands of questions and connections at once."""


class User(Struct, frozen=True, omit_defaults=True):
    """The user of a token. A TokenReview returns these fields, and a SubjectAccessReview needs them."""

    username: str | None = None
    uid: str | None = None
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class ReviewStatus(Struct, frozen=True, rename="camel"):
    """The answer of the API server in a review. Each kind of review has some of these fields."""

    allowed: bool | None = None
    authenticated: bool | None = None
    user: User | None = None
    user_info: User | None = None


class _Review(Struct, frozen=True):
    status: ReviewStatus | None = None


_decode_review = msgspec.json.Decoder(_Review).decode


async def review(client: Requests, api_version: str, kind: str, spec: Mapping[str, object]) -> ReviewStatus:
    """Ask the API server. Raise ApiError, or DecodeError if the answer does not have the expected form."""
    body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
    path = f"/apis/{api_version}/{kind.lower()}s"
    answer = await client.request("POST", path, body=body, timeout_s=REQUEST_TIMEOUT_S)
    return _decode_review(answer).status or ReviewStatus()


async def missing_permissions(client: Requests, needed: Iterable[Permission]) -> tuple[MissingPermission, ...]:
    """Return the missing permissions, one for each resource, with all missing verbs. Raise ApiError."""
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
    """Return True also if the controller may not ask. An ApiError is returned, so that it cancels no other request."""
    try:
        answer = await review(client, ACCESS_REVIEWS, "SelfSubjectAccessReview", {"resourceAttributes": permission})
    except Forbidden as error:
        # If users have no permission to ask for their own permissions, the check is impossible. The controller starts
        # anyway.
        log.warning("cannot check permissions", why=str(error))
        return True
    except ApiError as error:
        return error
    return bool(answer.allowed)


async def _whoami(client: Requests) -> str:
    """Return the user who needs the missing permissions, or "this user" if the name is unknown."""
    try:
        found = (await review(client, TOKEN_REVIEWS, "SelfSubjectReview", {})).user_info
    except ApiError:
        return "this user"
    return (found and found.username) or "this user"
