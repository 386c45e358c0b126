"""An admission policy that refuses requests. The policies of a real cluster may do the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.controller_process import ReplicaSetNamespace, eventually

GROUPS = {
    "virtualmachineinstances": "kubevirt.io/v1",
    "virtualmachines": "kubevirt.io/v1",
    "virtualmachinepools": "pool.kubevirt.io/v1beta1",
    "datavolumes": "cdi.kubevirt.io/v1beta1",
}
MESSAGE = "the house says no"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@contextmanager
def denied(
    objects: ReplicaSetNamespace, verb: str, resource: str, *, name: str, unless: str = "false", message: str = MESSAGE
) -> Iterator[None]:
    """Refuse a verb ("UPDATE", "DELETE") on a resource of the namespace while the block runs.

    `unless` is an expression in CEL. The policy allows a request for which the expression is true. `name` is an
    existing object. The dry run of a request for this object shows when the policy is in force.
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


def define(objects: ReplicaSetNamespace, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    objects.apply(path, name, {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "spec": spec})
