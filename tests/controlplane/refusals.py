"""What refuses requests on a real cluster: a quota and an admission policy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.controlplane.documents import Document, vm_document, vmi_document
from tests.controlplane.namespace import Namespace
from tests.controlplane.waits import eventually

GROUPS = {
    "virtualmachineinstances": "kubevirt.io/v1",
    "virtualmachines": "kubevirt.io/v1",
    "virtualmachinepools": "pool.kubevirt.io/v1beta1",
    "datavolumes": "cdi.kubevirt.io/v1beta1",
}
PROBES = {"virtualmachineinstances": vmi_document("probe"), "virtualmachines": vm_document("probe")}
MESSAGE = "the house says no"
ADMISSION = {"apiVersion": "admissionregistration.k8s.io/v1"}


def allow(namespace: Namespace, number: int, *, of: str = "") -> None:
    """Limit the number of members, or of these objects, and wait until the API server enforces the limit."""
    resource = of or namespace.members
    objects = namespace.all_of(resource)
    there = len(objects())

    def is_full() -> bool:
        return "exceeded quota" in namespace.refusal("POST", objects.path, PROBES[resource])

    # A full quota refuses the probe. So a quota with room is full first.
    for limit in dict.fromkeys((min(there, number), number)):
        hard = {f"count/{resource}.kubevirt.io": str(limit)}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
        namespace.kubectl.apply(quota)
        eventually(
            lambda hard=hard: namespace.quotas.get("few").get("status", {}).get("hard") == hard,
            within_s=20,
            what="the quota controller sets the limit",
        )
        if there >= limit:
            eventually(is_full, what="the quota is in force")


@contextmanager
def denied(
    namespace: Namespace, verb: str, resource: str, *, name: str = "", unless: str = "false", message: str = MESSAGE
) -> Iterator[None]:
    """Refuse a verb ("CREATE", "UPDATE", "DELETE") on a resource of the namespace while the block runs.

    `unless` is an expression in CEL. The policy allows a request for which the expression is true. `name` is an
    existing object, and needed except for "CREATE". The dry run of a request for this object shows when the policy is
    in force.
    """
    policy = f"{namespace.namespace}-{verb.lower()}"
    kind, _, subresource = resource.partition("/")
    objects = namespace.all_of(kind, GROUPS[kind])
    path = f"{objects.path}/{name}/{subresource}".rstrip("/")
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(resource, verb)], "namespaceSelector": _here(namespace)},
        "validations": [{"expression": unless, "message": message}],
    }
    bound = {
        "policyName": policy,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": _here(namespace)},
    }
    change = {"status": {"replicas": 9}} if subresource else {"metadata": {"annotations": {"probe": "yes"}}}
    asked: dict[str, tuple[str, Document | None]] = {
        "CREATE": ("POST", PROBES.get(kind)),
        "DELETE": ("DELETE", None),
        "UPDATE": ("PATCH", change),
    }
    method, body = asked[verb]
    documents = [
        {**ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": policy}, "spec": spec},
        {**ADMISSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": policy}, "spec": bound},
    ]
    with _in_force(namespace, documents, lambda: message in namespace.refusal(method, path, body)):
        yield


@contextmanager
def _in_force(namespace: Namespace, documents: list[Document], refuses: Callable[[], bool]) -> Iterator[None]:
    """Define these objects of the cluster while the block runs. The server uses them after a short delay."""
    namespace.kubectl.apply(*documents)
    eventually(refuses, within_s=30, what="the refusal is in force")
    try:
        yield
    finally:
        for document in reversed(documents):
            namespace.kubectl.delete(document)
        eventually(lambda: not refuses(), within_s=30, what="the refusal is gone")


def _rule(resource: str, verb: str) -> Document:
    group, _ = GROUPS[resource.partition("/")[0]].split("/")
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": [verb], "resources": [resource]}


def _here(namespace: Namespace) -> Document:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace.namespace}}
