"""Patches that change finalizers and owners, and disturb nobody else's (P2, P6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.finalizers import addition_patch, letting_go_patch, removal_patch
from informers.meta import ObjectMeta, OwnerReference
from tests.fakes.patches import PatchError, json_patch, merge_patch

FINALIZER = "pool.kubevirt.io/finalizer"
POOL = "uid-of-the-pool"


def owner(uid: str) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Thing", name=f"name-of-{uid}", uid=uid, block_owner_deletion=False)


def meta(*, finalizers: tuple[str, ...] | None = None, owners: tuple[str, ...] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name="vm-0",
        uid="uid-of-the-vm",
        resource_version="42",
        finalizers=finalizers,
        owner_references=None if owners is None else tuple(map(owner, owners)),
    )


def document(held: ObjectMeta) -> dict[str, Any]:
    fields = msgspec.json.decode(msgspec.json.encode(held), type=dict[str, Any])
    return {"metadata": {name: value for name, value in fields.items() if value is not None}, "spec": {"a": 1}}


def after(held: ObjectMeta, patch: bytes) -> dict[str, Any]:
    """What the server makes of it."""
    decoded = msgspec.json.decode(patch)
    return json_patch(document(held), decoded) if isinstance(decoded, list) else merge_patch(document(held), decoded)


others = st.lists(st.sampled_from(["a/b", "c", "orphan"]), max_size=4)


@given(others, others)
def test_p6_our_finalizer_goes_and_the_others_stay_in_their_order(before: list[str], behind: list[str]):
    held = meta(finalizers=(*before, FINALIZER, *behind), owners=(POOL,))
    wanted = document(held)
    wanted["metadata"]["finalizers"] = [*before, *behind]
    assert after(held, removal_patch(held, FINALIZER)) == wanted


@pytest.mark.parametrize("finalizers", [None, (), ("a/b",)])
def test_p6_a_finalizer_that_is_not_there_is_not_taken_off(finalizers: tuple[str, ...] | None):
    held = meta(finalizers=finalizers)
    assert after(held, removal_patch(held, FINALIZER)) == document(held)


def test_p6_a_finalizer_that_is_there_twice_goes_twice():
    held = meta(finalizers=(FINALIZER, "a/b", FINALIZER))
    assert after(held, removal_patch(held, FINALIZER))["metadata"]["finalizers"] == ["a/b"]


@pytest.mark.parametrize("now", [(), ("a/b", FINALIZER), ("a/b", "c")])
def test_p6_the_server_refuses_what_was_decided_on_other_finalizers(now: tuple[str, ...]):
    patch = msgspec.json.decode(removal_patch(meta(finalizers=(FINALIZER, "c")), FINALIZER))
    with pytest.raises(PatchError):
        json_patch(document(meta(finalizers=now)), patch)


def test_p6_the_server_refuses_what_was_decided_on_another_object_of_the_name():
    held = meta(finalizers=(FINALIZER,), owners=(POOL,))
    another = document(held)
    another["metadata"]["uid"] = "uid-of-another"
    for patch in (removal_patch(held, FINALIZER), letting_go_patch(held, FINALIZER, POOL)):
        with pytest.raises(PatchError):
            json_patch(another, msgspec.json.decode(patch))


def test_p6_a_vm_that_changes_all_the_time_is_let_go_all_the_same():
    held = meta(finalizers=(FINALIZER,), owners=(POOL,))
    changed = document(held)
    changed["metadata"]["resourceVersion"] = "4711"
    for patch in (removal_patch(held, FINALIZER), letting_go_patch(held, FINALIZER, POOL)):
        assert json_patch(changed, msgspec.json.decode(patch))["metadata"]["finalizers"] == []


owner_uids = st.lists(st.sampled_from(["first", "second"]), max_size=3)


@given(others, owner_uids, owner_uids, st.integers(0, 2), st.booleans())
def test_p2_what_is_let_go_loses_this_owner_and_our_finalizer_and_nothing_else(
    finalizers: list[str], before: list[str], behind: list[str], references: int, is_held: bool
):
    held = meta(
        finalizers=(*finalizers, *([FINALIZER] if is_held else ()), *finalizers),
        owners=(*before, *[POOL] * references, *behind),
    )
    wanted = document(held)
    wanted["metadata"]["finalizers"] = [*finalizers, *finalizers]
    wanted["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner(uid)) for uid in (*before, *behind)]
    assert after(held, letting_go_patch(held, FINALIZER, POOL)) == wanted


def test_p2_the_server_refuses_to_take_another_owner_off():
    held = meta(owners=(POOL, "first"))
    patch = msgspec.json.decode(letting_go_patch(held, FINALIZER, POOL))
    with pytest.raises(PatchError):
        json_patch(document(meta(owners=("first", POOL))), patch)


@pytest.mark.parametrize("finalizers", [None, (), ("a/b", "c")])
def test_p6_our_finalizer_comes_behind_the_others(finalizers: tuple[str, ...] | None):
    held = meta(finalizers=finalizers)
    assert after(held, addition_patch(held, FINALIZER))["metadata"]["finalizers"] == [*(finalizers or ()), FINALIZER]


def test_p6_adding_is_tied_to_what_was_seen_since_it_writes_the_whole_list():
    patch = msgspec.json.decode(addition_patch(meta(finalizers=("a/b",)), FINALIZER))
    assert patch == {"metadata": {"uid": "uid-of-the-vm", "resourceVersion": "42", "finalizers": ["a/b", FINALIZER]}}
