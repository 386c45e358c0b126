"""The API server's rules for one object: preconditions, patches, generations, and fields that are not stored."""

from datetime import datetime
from typing import Any, Final

from informers.errors import ApiError
from informers.meta import ObjectKey
from tests.fakes.patches import PatchError, json_patch, merge_patch
from tests.fakes.requests import AnyResource, Document, Request, refusal

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_FINALIZER_OF: Final = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
_OMITTED_IF_EMPTY: Final = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
SET_BY_SERVER: Final = ("uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion")
"""Metadata that only the server sets."""


def wire(moment: datetime) -> str:
    """A time in the format of the API."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def without_nulls(document: Any) -> Any:
    """The document without null fields at any depth. Lists are not changed."""
    if isinstance(document, dict):
        return {field: without_nulls(value) for field, value in document.items() if value is not None}
    return document


def finalizers_of(document: Document) -> list[str]:
    return document["metadata"].get("finalizers") or []


def not_found(resource: AnyResource, key: ObjectKey) -> ApiError:
    return refusal(404, "NotFound", f'{resource.name} "{key.name}" not found')


def not_served(request: Request) -> Document:
    raise refusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: AnyResource, held: Document) -> ApiError:
    prefix = "object is being deleted: " if "deletionTimestamp" in held["metadata"] else ""
    return refusal(409, "AlreadyExists", f'{prefix}{resource.name} "{held["metadata"]["name"]}" already exists')


def _conflict(what: str, name: str, why: str) -> ApiError:
    return refusal(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}')


def check_preconditions(resource: AnyResource, meta: Document, *, uid: str, version: str) -> None:
    """Raise Conflict if the UID or the version of the object differs from the UID or the version in the request."""
    kind = f"{resource.kind}.{resource.group}"
    if uid and uid != meta["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})."
        raise _conflict(kind, meta["name"], f"{why} The object might have been deleted and then recreated")
    if version and version != meta["resourceVersion"]:
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
        raise _conflict(kind, meta["name"], f"{why} ({meta['resourceVersion']}). The object might have been modified")


def garbage_finalizers(meta: Document, propagation: str) -> list[str]:
    """The finalizers of an object after a deletion with this propagation policy.

    Without a policy, the finalizers do not change.
    """
    held = meta.get("finalizers") or []
    if not propagation:
        return held
    kept = [each for each in held if each not in (FOREGROUND, ORPHAN)]
    wanted = [*kept, *([_FINALIZER_OF[propagation]] if propagation in _FINALIZER_OF else [])]
    return held if set(wanted) == set(held) else wanted


def patched(resource: AnyResource, held: Document, patch: Any, *, subresource: str, has_status: bool) -> Document:
    """The object after a client's patch. Raises the server's error if the server refuses the patch."""
    meta = held["metadata"]
    if subresource and not has_status:
        raise not_found(resource, ObjectKey(meta["namespace"], meta["name"]))
    try:
        new = json_patch(held, patch) if isinstance(patch, list) else merge_patch(held, patch)
    except PatchError:
        raise refusal(422, "Invalid", "the server rejected our request due to an error in our request") from None
    if not new["metadata"].get("resourceVersion"):
        why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        raise refusal(422, "Invalid", f'{resource.name} "{meta["name"]}" is invalid: {why}')
    if new["metadata"]["resourceVersion"] != meta["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise _conflict(resource.name, meta["name"], why)
    if subresource == "status":
        # The server stores only the status. It ignores changes of other fields, even of the UID.
        return {**held, "status": new.get("status")}
    for field in ("uid", "deletionTimestamp"):
        if (wanted := new["metadata"].get(field)) and wanted != meta.get(field):
            why = f'metadata.{field}: Invalid value: "{wanted}": field is immutable'
            raise _invalid(resource, meta["name"], why)
    if meta.get("deletionTimestamp") and (added := set(finalizers_of(new)) - set(finalizers_of(held))):
        names = ", ".join(f'"{name}"' for name in sorted(added))
        why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
        raise _invalid(resource, meta["name"], f"metadata.finalizers: Forbidden: {why}")
    fixed = {field: meta[field] for field in SET_BY_SERVER if field in meta}
    rest = {field: value for field, value in new["metadata"].items() if field not in SET_BY_SERVER}
    new = {**new, "metadata": {**rest, **fixed}}
    if has_status:
        new.pop("status", None)
        return {**new, "status": held["status"]} if "status" in held else new
    return new


def stored(held: Document | None, new: Document, *, has_status: bool) -> Document:
    """The object as the server stores it: without empty metadata, and with its new generation."""
    meta = {field: value for field, value in new["metadata"].items() if value or field not in _OMITTED_IF_EMPTY}
    new = {field: value for field, value in new.items() if value is not None}
    if held is not None and _content(new, has_status=has_status) != _content(held, has_status=has_status):
        meta["generation"] = held["metadata"].get("generation", 0) + 1
    return {**new, "metadata": meta}


def _content(document: Document, *, has_status: bool) -> Document:
    """The fields whose changes increment the object's generation."""
    others = ("metadata", "status") if has_status else ("metadata",)
    return {field: each for field, each in document.items() if field not in others}


def _invalid(resource: AnyResource, name: str, why: str) -> ApiError:
    return refusal(422, "Invalid", f'{resource.kind}.{resource.group} "{name}" is invalid: {why}')
