"""What refuses requests on a real cluster: a quota and an admission policy."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane.documents import document, vm_document, vmi_document
from tests.controlplane.namespace import Namespace
from tests.controlplane.objects import Objects
from tests.controlplane.waits import eventually

PROBES = {"virtualmachineinstances": vmi_document("probe"), "virtualmachines": vm_document("probe")}
MESSAGE = "the house says no"
ADMISSION = "admissionregistration.k8s.io/v1"


def allow(namespace: Namespace, number: int) -> None:
    """Limit the number of members, and wait until the API server enforces the limit."""
    resource = namespace.members
    objects = namespace.all_of(resource)
    there = len(objects())

    def is_full() -> bool:
        return "exceeded quota" in namespace.refusal("POST", objects.path, PROBES[resource])

    # A full quota refuses the probe. So a quota with room is full first.
    for limit in dict.fromkeys((min(there, number), number)):
        hard = {f"count/{resource}.kubevirt.io": str(limit)}
        namespace.kubectl.apply(document("v1", "ResourceQuota", "few", {"hard": hard}))
        eventually(
            lambda hard=hard: namespace.quotas.get("few").get("status", {}).get("hard") == hard,
            within_s=20,
            what="the quota controller sets the limit",
        )
        if there >= limit:
            eventually(is_full, what="the quota is in force")


@contextmanager
def denied(namespace: Namespace, objects: Objects, *, name: str, unless: str = "false") -> Iterator[None]:
    """Refuse updates of these objects of the namespace while the block runs.

    `unless` is an expression in CEL. The policy allows a request for which the expression is true. `name` is an
    existing object: the dry run of its change shows when the policy is in force.
    """
    policy, (*_, group, _, _, _, resource) = f"{namespace.namespace}-update", objects.path.split("/")
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.namespace}}}
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], **here},
        "validations": [{"expression": unless, "message": MESSAGE}],
    }
    bound = {"policyName": policy, "validationActions": ["Deny"], "matchResources": here}
    objects_of_cluster = [
        document(ADMISSION, "ValidatingAdmissionPolicy", policy, spec),
        document(ADMISSION, "ValidatingAdmissionPolicyBinding", policy, bound),
    ]

    def refuses() -> bool:
        change = {"metadata": {"annotations": {"probe": "yes"}}}
        return MESSAGE in namespace.refusal("PATCH", f"{objects.path}/{name}", change)

    # The server uses these objects after a short delay.
    namespace.kubectl.apply(*objects_of_cluster)
    eventually(refuses, within_s=30, what="the refusal is in force")
    try:
        yield
    finally:
        for each in reversed(objects_of_cluster):
            namespace.kubectl.delete(each)
        eventually(lambda: not refuses(), within_s=30, what="the refusal is gone")
