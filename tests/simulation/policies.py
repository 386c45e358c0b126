"""The admission policies of the simulation, and a controller that changes labels. The policies refuse or change the
writes of our processes only.
"""

from collections.abc import Callable
from typing import Any

from controller.kubevirt.annotations import STANDBY_STATE, TEMPLATE_HASH
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from tests.fakes.requests import AnyResource, Document, refusal
from tests.simulation.faults import Faults

MESSAGE = "denied by a policy"


class Policies:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def admit(self, now: float, verb: str, resource: AnyResource, subresource: str, body: Any) -> Any:
        """Return the request body that the server uses. Raise Forbidden if a policy refuses the write."""
        for fault in self._faults.now("refuse", now):
            if is_selected(fault.target, verb, resource, subresource, body):
                raise refusal(403, "Forbidden", f"{resource.name} is forbidden: {MESSAGE} ({fault.target})")
        if verb == "create" and resource.plural in ("virtualmachines", "virtualmachineinstances"):
            for _ in self._faults.now("quota", now):
                raise refusal(403, "Forbidden", f"{resource.name} is forbidden: exceeded quota: few")
        for fault in self._faults.now("strip", now):
            body = _without(body, fault.target)
        for fault in self._faults.now("webhook", now):
            what, plural = fault.target.split(" ")
            if plural == resource.plural and verb != "delete" and not subresource:
                body = _from_webhook(what, verb, body)
        return body


def _from_webhook(what: str, verb: str, body: Any) -> Any:
    """The body after a webhook, which is down, denies the write, or adds a label or a field to a new object."""
    if what == "down":
        raise refusal(500, "InternalError", 'failed calling webhook "check.example.com": context deadline exceeded')
    if what == "deny":
        raise refusal(422, "Invalid", 'admission webhook "check.example.com" denied the request: not today')
    if verb != "create":
        return body
    if what == "label":
        return {**body, "metadata": {**body["metadata"], "labels": {**body["metadata"].get("labels", {}), "cost": "1"}}}
    inner = body["spec"].get("template")
    added = {**(inner["spec"] if inner else body["spec"]), "startStrategy": "Ready"}
    return {**body, "spec": {**body["spec"], "template": {**inner, "spec": added}} if inner else added}


def is_selected(target: str, verb: str, resource: AnyResource, subresource: str, body: Any) -> bool:
    """Return True if the policy `target` selects this write. A target is `verb plural[/subresource] [annotation]`."""
    wanted_verb, wanted, *annotation = target.split(" ")
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    if wanted_verb not in (verb, "*") or wanted != name:
        return False
    return not annotation or annotation[0] in written_annotations(body)


def written_annotations(body: Any) -> set[str]:
    """The annotations and labels that a request body writes."""
    if isinstance(body, list):
        paths = [step["path"] for step in body if step["op"] != "test"]
        names = {path.split("/")[3].replace("~1", "/") for path in paths if path.count("/") >= 3}
        whole = [step.get("value") for step in body if step["path"] in ("/metadata/annotations", "/metadata/labels")]
        return names | {name for each in whole if isinstance(each, dict) for name in each}
    meta = (body or {}).get("metadata") or {}
    return {*(meta.get("annotations") or {}), *(meta.get("labels") or {})}


def _without(body: Any, name: str) -> Any:
    """The request body without one annotation or label of the object's own metadata."""
    escaped = name.replace("/", "~1")
    if isinstance(body, list):
        own = (f"/metadata/annotations/{escaped}", f"/metadata/labels/{escaped}")
        kept = [step for step in body if step["op"] == "test" or step["path"] not in own]
        return [
            {**step, "value": {key: value for key, value in step["value"].items() if key != name}}
            if step["path"] in ("/metadata/annotations", "/metadata/labels") and isinstance(step.get("value"), dict)
            else step
            for step in kept
        ]
    meta: Document = dict(body.get("metadata") or {})
    for field in ("annotations", "labels"):
        if name in (meta.get(field) or {}):
            meta[field] = {key: value for key, value in meta[field].items() if key != name}
    return {**body, "metadata": meta} if meta else body


def relabel_later(server: Any, change: Any, after: Callable[..., None]) -> None:
    """Another controller, or a policy for updates, changes or removes a label or an annotation of each object that
    changes, takes its owner off, or starts it.
    """

    def relabel(uid: str, patch: Any) -> None:
        held = server.current(change.resource, change.key)
        if held is not None and held["metadata"]["uid"] == uid:
            server.change(change.resource, change.key, patch)

    for fault in server.faults.now("relabel", server.loop.time()):
        plural, name, *values = fault.target.split(" ")
        if change.before is None or change.after is None or plural != change.resource.plural:
            continue
        meta, value = change.after["metadata"], "".join(values) or None
        if value == "older":
            value = _first_hash(server, meta)
        field = next((each for each in ("labels", "annotations") if name in (meta.get(each) or {})), "")
        field = field or ("annotations" if name == STANDBY_STATE and value else "")
        if field and (meta.get(field) or {}).get(name) != value:
            after(0.05, relabel, meta["uid"], {"metadata": {field: {name: value}}})
        elif name == "ownerReferences" and any(each["kind"] != "VirtualMachine" for each in meta.get(name) or ()):
            after(0.05, relabel, meta["uid"], {"metadata": {name: None}})
        elif name == "runStrategy" and change.after["spec"].get(name) == "Halted":
            after(0.05, relabel, meta["uid"], {"spec": {name: "Always"}})


def _first_hash(server: Any, meta: Document) -> str | None:
    """The hash of the first revision of the set that controls the VMI."""
    owners = {each["uid"] for each in meta.get("ownerReferences") or ()}
    stored = (each["metadata"] for _, each in sorted(server._of(CONTROLLER_REVISIONS).items()))
    own = (each for each in stored if owners & {other["uid"] for other in each.get("ownerReferences") or ()})
    hashes = ((each.get("labels") or {}).get(TEMPLATE_HASH) for each in own)
    return next(filter(None, hashes), None)
