"""Roles with exactly the permissions that `permissions_needed` lists. Tests run the controller with these roles."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from controller.access import Permission
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually

GROUP = "rbac.authorization.k8s.io"


def user(name: str) -> dict[str, Any]:
    """A user with a client certificate, as the subject of a binding."""
    return {"kind": "User", "name": name, "apiGroup": GROUP}


def service_account(namespace: str, name: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def person(plane: ControlPlane, namespace: str, directory: Path, role: str = "edit") -> Kubectl:
    """kubectl as a new user who has only this role of the cluster, such as `edit`, and only in this namespace."""
    name = f"{role}er-of-{namespace}"
    admin, who = (
        Kubectl(plane.kubeconfig, namespace),
        Kubectl(plane.write_kubeconfig(directory / name, name), namespace),
    )
    admin("create", "rolebinding", name, f"--clusterrole={role}", f"--user={name}")
    asked = ("auth", "can-i", "get", "virtualmachinepools.pool.kubevirt.io")
    eventually(lambda: who(*asked, check=False).stdout.strip() == "yes", what=f"the role {role} is in force")
    return who


def roles(permissions: Iterable[Permission], *, name: str, subject: dict[str, Any]) -> list[dict[str, Any]]:
    """A role and its binding for each namespace in which a permission is needed. For permissions in all namespaces, a
    cluster role and its binding.
    """
    by_namespace: dict[str, list[Permission]] = {}
    for permission in permissions:
        by_namespace.setdefault(permission.namespace, []).append(permission)
    objects = []
    for namespace, wanted in by_namespace.items():
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        objects += [
            {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "rules": rules(wanted)},
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
                "subjects": [subject],
            },
        ]
    return objects


def rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """One rule for each resource, with all verbs of the resource. RBAC cannot limit the verb create to names, so a rule
    with create has no names.
    """
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for wanted in permissions:
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        verbs.setdefault((wanted.group, resource, wanted.name), []).append(wanted.verb)
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": sorted(verbs[group, resource, name]),
            **({"resourceNames": [name]} if name else {}),
        }
        for group, resource, name in verbs
    ]
