"""Refuses new VMs in the namespace of a case, by an admission policy.

The policy and its binding belong to no namespace, but apply to the namespace of the case alone. They have its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from conformance.case import Document, Skip
from conformance.namespaces import LABEL
from conformance.pools import Pools
from informers.errors import Forbidden, NotFound, StatusError

GROUP = "admissionregistration.k8s.io/v1"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
PATHS = {
    POLICY: f"/apis/{GROUP}/validatingadmissionpolicies",
    BINDING: f"/apis/{GROUP}/validatingadmissionpolicybindings",
}
MESSAGE = "the conformance suite refuses new VMs"


@asynccontextmanager
async def new_vms_refused(pools: Pools) -> AsyncIterator[None]:
    """Refuse all new VMs until the context ends. Raise Skip if the user may not create the policy."""
    try:
        try:
            await pools.api.create(PATHS[POLICY], _policy(pools.namespace))
            await pools.api.create(PATHS[BINDING], _binding(pools.namespace))
        except (Forbidden, NotFound) as error:
            raise Skip(f"an admission policy cannot be created: {error}") from error
        await pools.until("a policy in force", lambda: _is_refused(pools), bool)
        yield
    finally:
        for path in (PATHS[BINDING], PATHS[POLICY]):
            await pools.api.delete(f"{path}/{pools.namespace}")


async def _is_refused(pools: Pools) -> bool:
    template = pools.template()["spec"]
    vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "new"}, "spec": template}
    try:
        await pools.api.create(pools.vm_path, vm, dryRun="All")
    except StatusError as error:
        return MESSAGE in str(error)
    return False


def _policy(namespace: str) -> Document:
    rule = {"apiGroups": ["kubevirt.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [{**rule, "resources": ["virtualmachines"]}],
        },
        "validations": [{"expression": "false", "message": MESSAGE}],
    }
    return _document(POLICY, namespace, spec)


def _binding(namespace: str) -> Document:
    return _document(BINDING, namespace, {"policyName": namespace, "validationActions": ["Deny"]})


def _document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, "labels": {LABEL: name}}, "spec": spec}
