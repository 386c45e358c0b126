"""Roles with exactly the permissions that `permissions_needed` lists. Tests run the controller with these roles."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from controller.access import Permission
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tools.chart.rules import Rule, rules_for

GROUP = "rbac.authorization.k8s.io"


def person(plane: ControlPlane, namespace: str, directory: Path, role: str = "edit") -> Kubectl:
    """kubectl as a new user who has only this role of the cluster, such as `edit`, and only in this namespace."""
    name = f"{role}er-of-{namespace}"
    who = Kubectl(plane.write_kubeconfig(directory / name, name), namespace)
    Kubectl(plane.kubeconfig, namespace)("create", "rolebinding", name, f"--clusterrole={role}", f"--user={name}")
    asked = ("auth", "can-i", "get", "virtualmachinepools.pool.kubevirt.io")
    eventually(lambda: who(*asked, check=False).stdout.strip() == "yes", what=f"the role {role} is in force")
    return who


def roles(permissions: Iterable[Permission], *, name: str, account_namespace: str) -> list[dict[str, Any]]:
    """A role and its binding for each namespace in which a permission is needed. For permissions in all namespaces, a
    cluster role and its binding. The subject is the service account of this name.
    """
    subject = {"kind": "ServiceAccount", "namespace": account_namespace, "name": name}
    by_namespace: dict[str, list[Permission]] = {}
    for permission in permissions:
        by_namespace.setdefault(permission.namespace, []).append(permission)
    objects = []
    for namespace, wanted in by_namespace.items():
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        common = {"apiVersion": f"{GROUP}/v1", "metadata": metadata}
        reference = {"apiGroup": GROUP, "kind": kind, "name": name}
        objects += [
            {**common, "kind": kind, "rules": [_document(each) for each in rules_for(wanted)]},
            {**common, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]},
        ]
    return objects


def _document(rule: Rule) -> dict[str, Any]:
    names = {"resourceNames": [*rule.names]} if rule.names else {}
    return {"apiGroups": [rule.group], "resources": [*rule.resources], "verbs": [*rule.verbs], **names}
