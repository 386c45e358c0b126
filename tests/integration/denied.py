"""An admission policy and a webhook that refuse requests. Those of a real cluster may do the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.controller_process import Rejected, ReplicaSetNamespace, eventually
from tests.integration.quota import probe

GROUPS = {
    "virtualmachineinstances": "kubevirt.io/v1",
    "virtualmachines": "kubevirt.io/v1",
    "virtualmachinepools": "pool.kubevirt.io/v1beta1",
    "datavolumes": "cdi.kubevirt.io/v1beta1",
}
MESSAGE = "the house says no"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
WEBHOOK_DOWN = "failed calling webhook"


@contextmanager
def denied(
    objects: ReplicaSetNamespace,
    verb: str,
    resource: str,
    *,
    name: str = "",
    unless: str = "false",
    message: str = MESSAGE,
) -> Iterator[None]:
    """Refuse a verb ("CREATE", "UPDATE", "DELETE") on a resource of the namespace while the block runs.

    `unless` is an expression in CEL. The policy allows a request for which the expression is true. `name` is an
    existing object, and needed except for "CREATE". The dry run of a request for this object shows when the policy is
    in force.
    """
    policy = f"{objects.namespace}-{verb.lower()}"
    kind, _, subresource = resource.partition("/")
    group, version = GROUPS[kind].split("/")
    path = f"/apis/{group}/{version}/namespaces/{objects.namespace}/{kind}/{name}/{subresource}".rstrip("/")
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": [verb], "resources": [resource]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": objects.namespace}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": unless, "message": message}],
    }
    bound = {"policyName": policy, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}}
    define(objects, POLICIES, "ValidatingAdmissionPolicy", policy, spec)
    define(objects, BINDINGS, "ValidatingAdmissionPolicyBinding", policy, bound)

    def refuses() -> bool:
        if verb == "CREATE":
            return message in objects.refusal("POST", path, probe(kind))
        if verb == "DELETE":
            return message in objects.refusal("DELETE", path)
        change = {"status": {"replicas": 9}} if subresource else {"metadata": {"annotations": {"probe": "yes"}}}
        return message in objects.refusal("PATCH", path, change)

    eventually(refuses, what="the policy is in force")
    try:
        yield
    finally:
        objects.ask("DELETE", f"{BINDINGS}/{policy}")
        objects.ask("DELETE", f"{POLICIES}/{policy}")
        eventually(lambda: not refuses(), what="the policy is gone")


@contextmanager
def webhook_down(objects: ReplicaSetNamespace, resource: str) -> Iterator[None]:
    """Refuse to create objects of a resource in the namespace while the block runs: their webhook does not answer."""
    group, version = GROUPS[resource].split("/")
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
    webhook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": objects.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    objects.apply(WEBHOOKS, objects.namespace, {**document, "webhooks": [webhook]})
    path = f"/apis/{group}/{version}/namespaces/{objects.namespace}/{resource}?dryRun=All"

    def refuses() -> bool:
        try:
            objects.ask("POST", path, probe(resource))
        except Rejected as refused:
            return WEBHOOK_DOWN in str(refused)
        return False

    eventually(refuses, what="the webhook is in force")
    try:
        yield
    finally:
        objects.ask("DELETE", f"{WEBHOOKS}/{objects.namespace}")
        eventually(lambda: not refuses(), what="the webhook is gone")


def define(objects: ReplicaSetNamespace, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    objects.apply(path, name, {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "spec": spec})
