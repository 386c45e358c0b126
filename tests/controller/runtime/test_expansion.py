"""The patch that expands a claim (P21)."""

import msgspec
import pytest

from controller.kubevirt.resources import DATA_VOLUMES, PVCS
from controller.runtime.actions import Done, ExpandClaim, Rejected
from controller.runtime.execute.patches import expansion
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import read_meta

KEY = ObjectKey("default", "data-0")
ACTION = ExpandClaim(
    resource=PVCS, key=KEY, size="2Gi", old_size="1Gi", owner=KEY, owner_uid="u", source=DATA_VOLUMES, why="it grows"
)


def claim(size: str, **metadata: object) -> tuple[ObjectMeta, bytes]:
    spec = {"resources": {"requests": {"storage": size}}}
    body = msgspec.json.encode({"metadata": {"name": "data-0", "resourceVersion": "7", **metadata}, "spec": spec})
    return read_meta(body), body


@pytest.mark.parametrize(
    ("present", "expanded"),
    [("1Gi", "2Gi"), ("1138166334", "2276332668"), ("1.5Gi", "2Gi"), ("500Mi", "2Gi"), ("0", "2Gi")],
)
def test_p21_the_claim_keeps_the_share_that_cdi_has_added(present: str, expanded: str):
    patch = expansion(ACTION, *claim(present))
    assert isinstance(patch, bytes)
    assert msgspec.json.decode(patch) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"resources": {"requests": {"storage": expanded}}},
    }


@pytest.mark.parametrize("present", ["2Gi", "2276332668", "3Gi"])
def test_p21_a_claim_that_is_large_enough_is_not_patched(present: str):
    assert expansion(ACTION, *claim(present)) == Done(ACTION, "7")


def test_p21_a_terminating_claim_is_not_expanded():
    assert isinstance(expansion(ACTION, *claim("1Gi", deletionTimestamp="2026-08-01T12:00:00Z")), Rejected)
