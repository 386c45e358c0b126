"""Roles in the namespace of a test."""

from __future__ import annotations

from tests.integration.controller_process import ReplicaSetNamespace, eventually


def grant(objects: ReplicaSetNamespace, user: str, verbs: str, resources: str) -> None:
    """Create a role for a user, and wait until the API server uses the role."""
    objects.kubectl("create", "role", user, f"--verb={verbs}", f"--resource={resources}")
    objects.kubectl("create", "rolebinding", user, f"--role={user}", f"--user={user}")
    (verb, *_), (resource, *_) = verbs.split(","), resources.split(",")
    question = ("auth", "can-i", verb, resource, f"--as={user}")
    eventually(lambda: objects.kubectl(*question, check=False).stdout == "yes\n", what=f"{user} may {verb} {resource}")
