"""This module answers admission reviews, also those of evictions, as KubeVirt's webhooks do. All functions are pure."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from sandbox.virt_api.defaults import default_vm, default_vmi
from sandbox.virt_api.lifecycle import has_condition
from sandbox.virt_api.registration import USER
from sandbox.virt_api.validation import Cause, causes

Review = dict[str, Any]
Fields = dict[str, Any]

MOST_CAUSES: Final = 10
"""The maximum number of causes in a rejection. As in KubeVirt, the message has the number of further causes."""

RUNNING_WARNING: Final = "spec.running is deprecated, please use spec.runStrategy instead."


def mutate(review: Review, *, now: str, new_uuid: Callable[[], str]) -> Review:
    """Return the answer of the mutating webhook for a VM or a VMI: the object is allowed, with a JSON patch."""
    request = review["request"]
    new, is_new = request["object"], request["operation"] == "CREATE"
    if request["resource"]["resource"] == "virtualmachines":
        deleted = new["metadata"].get("deletionTimestamp")
        changed = new if deleted else default_vm(new, is_new=is_new, new_uuid=new_uuid)
    elif is_new:
        changed = default_vmi(new, now=now, new_uuid=new_uuid)
    else:
        changed = _with_status_of_kubevirt(request, new)
    return _answer(review, patch=_replacements(new, changed))


def validate(review: Review) -> Review:
    request = review["request"]
    new, old = request["object"], request.get("oldObject")
    resource = request["resource"]["resource"]
    wrong = causes(resource, new, old, by_kubevirt=request["userInfo"].get("username") == USER)
    if wrong:
        return _answer(review, wrong)
    is_running_set = resource == "virtualmachines" and (new.get("spec") or {}).get("running") is not None
    return _answer(review, warnings=(RUNNING_WARNING,) if is_running_set else ())


def answer_eviction(review: Review, denial: str) -> Review:
    answer = _answer(review)
    if denial:
        answer["response"] |= {"allowed": False, "status": {"message": denial, "code": 429}}
    return answer


def _with_status_of_kubevirt(request: Fields, new: Fields) -> Fields:
    """If a user changed the status, the result has the old status. Only KubeVirt may change the status."""
    old = request["oldObject"]
    if request["userInfo"].get("username") == USER or new.get("status") == old.get("status"):
        return new
    return {**new, "status": old.get("status") or {}}


def _replacements(before: Fields, after: Fields) -> list[Fields]:
    return [
        {"op": "replace" if field in before else "add", "path": f"/{field}", "value": after[field]}
        for field in ("metadata", "spec", "status")
        if field in after and before.get(field) != after[field]
    ]


def _answer(
    review: Review, wrong: Sequence[Cause] = (), *, patch: Sequence[Fields] = (), warnings: Sequence[str] = ()
) -> Review:
    response: Fields = {"uid": review["request"]["uid"], "allowed": not wrong}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    if wrong:
        shown = wrong[:MOST_CAUSES]
        message = ", ".join(cause.message for cause in shown)
        if len(wrong) > len(shown):
            message += f", and {len(wrong) - len(shown)} more validation errors"
        details = {"causes": msgspec.to_builtins(shown)}
        response["status"] = {"message": message, "reason": "Invalid", "code": 422, "details": details}
    if warnings:
        response["warnings"] = [*warnings]
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


Document = Mapping[str, Any]


class Verdict(Struct, frozen=True):
    """The answer to an eviction, with a `denial` or "". A VMI that `is_marked` gets `status.evacuationNodeName`."""

    denial: str = ""
    is_marked: bool = False


def judge_eviction(pod: Document, vmi: Document) -> Verdict:
    phase = (pod.get("status") or {}).get("phase")
    if (pod["metadata"].get("labels") or {}).get("kubevirt.io") != "virt-launcher" or phase in ("Succeeded", "Failed"):
        return Verdict()
    name, status = vmi["metadata"]["name"], vmi.get("status") or {}
    strategy, is_migratable = vmi["spec"].get("evictionStrategy"), has_condition(vmi, "LiveMigratable")
    if strategy == "LiveMigrate" and not is_migratable:
        return Verdict(f"VMI {name} is configured with an eviction strategy but is not live-migratable")
    leaves = strategy in ("LiveMigrate", "External") or (strategy == "LiveMigrateIfPossible" and is_migratable)
    if not leaves:
        return Verdict()
    triggered = f'Eviction triggered evacuation of VMI "{vmi["metadata"]["namespace"]}/{name}"'
    if status.get("evacuationNodeName"):
        return Verdict(f"Evacuation in progress: {triggered}")
    if status.get("nodeName") != pod["spec"].get("nodeName"):
        return Verdict("Eviction request for target Pod")
    return Verdict(triggered, is_marked=True)
