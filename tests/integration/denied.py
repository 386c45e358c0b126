"""An admission policy that refuses requests. The policies of a real cluster may do the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import PoolNamespace

GROUPS = {
    "virtualmachines": "kubevirt.io",
    "virtualmachinepools/status": "pool.kubevirt.io",
    "datavolumes": "cdi.kubevirt.io",
}


@contextmanager
def denied(pools: PoolNamespace, verb: str, resource: str, *, probe: tuple[str, ...]) -> Iterator[None]:
    """Refuse a verb ("UPDATE", "DELETE") on a resource of the namespace while the block runs.

    `probe` is a kubectl command that fails as soon as the policy is in force. It must be a dry run.
    """
    policy = f"{pools.namespace}-{verb.lower()}"
    rule = {
        "apiGroups": [GROUPS[resource]],
        "apiVersions": ["*"],
        "operations": [verb],
        "resources": [resource],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": pools.namespace}}
    version = "admissionregistration.k8s.io/v1"
    pools.kubectl.apply(
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
                "validations": [{"expression": "false", "message": "the house says no"}],
            },
        },
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy},
            "spec": {"policyName": policy, "validationActions": ["Deny"]},
        },
    )

    def refuses() -> bool:
        return pools.kubectl(*probe, "--dry-run=server", check=False).returncode != 0

    eventually(refuses, what="the policy is in force")
    try:
        yield
    finally:
        pools.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", policy)
        eventually(lambda: not refuses(), what="the policy is gone")
