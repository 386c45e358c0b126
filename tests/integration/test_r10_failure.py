"""R10: a refused create is shown on the set, retried with backoff, and forgotten when it went well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.herd import Place, eventually, stays
from tests.integration.quota import QUOTA, allow

pytestmark = pytest.mark.cluster


def failure_of(place: Place) -> dict[str, Any] | None:
    return place.condition("ReplicaFailure")


def test_r10_a_quota_is_shown_in_the_servers_words_and_goes_when_it_is_raised(place: Place) -> None:
    allow(place, 0)
    place.make_set(5)
    eventually(lambda: failure_of(place), what="ReplicaFailure")
    allow(place, 2)
    eventually(lambda: len(place.alive()) == 2, what="as many as there may be")
    eventually(lambda: failure_of(place), what="ReplicaFailure")
    shown = failure_of(place)
    assert shown is not None
    assert (shown["status"], shown["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: few" in shown["message"]
    assert QUOTA in shown["message"]
    eventually(lambda: place.status()["replicas"] == 2, what="those that were created count")
    tried = len(place.requests("create"))
    eventually(lambda: len(place.requests("create")) > tried, what="another try")
    again = failure_of(place)
    assert again is not None
    assert again["lastTransitionTime"] == shown["lastTransitionTime"]
    allow(place, 10)
    place.wait_for(5)
    eventually(lambda: failure_of(place) is None, what="ReplicaFailure goes")
    assert "conditions" not in place.status()


def test_r10_a_quota_is_no_hot_loop_and_no_flood_of_status_writes(place: Place) -> None:
    allow(place, 0)
    place.make_set(100)
    eventually(lambda: failure_of(place), what="ReplicaFailure")
    stays(lambda: not place.alive(), for_s=4)
    # 5 ms doubled each time: ten tries take five seconds, each of them one create.
    assert 3 < len(place.requests("create")) < 15
    assert len(place.requests("patch")) <= 3


def refuse(place: Place, operation: str) -> None:
    """Let an admission policy refuse this of all VMIs of the namespace."""
    name = f"no-{operation.lower()}-in-{place.namespace}"
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}}
    rule = {
        "apiGroups": ["kubevirt.io"],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": ["virtualmachineinstances"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule], **here},
        "validations": [{"expression": "false", "message": "not on a Friday"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        place.kubectl.apply(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        )


def test_r10_a_delete_that_admission_refuses_is_shown_and_goes_when_it_is_allowed(place: Place) -> None:
    place.make_set(2)
    place.wait_for(2)
    policies = f"validatingadmissionpolicy/no-delete-in-{place.namespace}"
    refuse(place, "DELETE")
    eventually(lambda: is_refused(place), what="the policy is in force")
    place.change_set({"spec": {"replicas": 1}})
    eventually(lambda: failure_of(place), what="ReplicaFailure")
    shown = failure_of(place)
    assert shown is not None
    assert shown["reason"] == "FailedDelete"
    assert "not on a Friday" in shown["message"]
    assert len(place.alive()) == 2
    place.kubectl("delete", policies)
    place.wait_for(1)
    eventually(lambda: failure_of(place) is None, what="ReplicaFailure goes")


def is_refused(place: Place) -> bool:
    name = next(iter(place.alive()))
    done = place.kubectl("delete", "vmi", name, "--dry-run=server", check=False)
    return done.returncode != 0
