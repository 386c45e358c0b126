"""R4 and R5: the number of created VMIs, and their content. R6: the number of deleted VMIs."""

import msgspec
import pytest

from controller.apimachinery.names import SAFE_ALPHABET
from controller.kubevirt.annotations import DELETION_COST, PROTECT, TEMPLATE_HASH
from controller.replicaset.plan import plan
from controller.runtime.actions import Create, Delete
from tests.builders import LABELS, OWNER_REFERENCE, members, replicaset, snapshot, vmi
from tests.strategies import template_hash_of


def creates(owner, *vmis, **circumstances) -> list[Create]:
    return [action for action in plan(snapshot(owner, vmis, **circumstances)).actions if isinstance(action, Create)]


def created_for(owner, **circumstances) -> dict:
    return msgspec.json.decode(creates(owner, **circumstances)[0].body)


def test_r4_no_more_than_the_burst_is_created_in_a_pass_and_the_plan_says_so():
    todo = plan(snapshot(replicaset(replicas=1000), burst=250))
    assert len(todo.actions) == 250
    assert todo.held == "750 more creates wait for the next pass"


def test_r5_the_body_of_a_create():
    owner = replicaset(template_annotations={"note": "hi"}, spec=b'{"domain":{}, "later":{"x":1.10}}')
    (create, *_) = creates(owner)
    body = msgspec.json.decode(create.body)
    name, label = body["metadata"]["name"], body["metadata"]["labels"][TEMPLATE_HASH]
    assert body == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "generateName": "test",
            "namespace": "default",
            "labels": {"myvmi": "myvmi", TEMPLATE_HASH: label},
            "annotations": {"note": "hi"},
            "ownerReferences": [OWNER_REFERENCE],
        },
        "spec": {"domain": {}, "later": {"x": 1.1}},
    }
    assert create.key == ("default", name)
    assert create.owner_uid == "uid-of-the-set"


def test_r5_finalizers_of_the_template_reach_the_vmi_and_belong_to_the_template():
    owner = replicaset(template_finalizers=("example.com/disk",))
    assert msgspec.json.decode(creates(owner)[0].body)["metadata"]["finalizers"] == ["example.com/disk"]
    assert template_hash_of(owner) != template_hash_of(replicaset())
    assert template_hash_of(replicaset(template_finalizers=())) == template_hash_of(replicaset())


def test_r5_a_name_is_the_base_and_five_safe_characters_with_nothing_between():
    names = [create.key.name for create in creates(replicaset(replicas=20))]
    assert len(names) == 20
    assert all(name.startswith("test") and len(name) == 9 and set(name[4:]) <= set(SAFE_ALPHABET) for name in names)


BASES = {
    "the template's name": (replicaset(template_name="test", generate_name="gen-"), "test"),
    "else its generateName": (replicaset(template_name=None, generate_name="gen-"), "gen-"),
    "else the set's name": (replicaset(template_name=None), "testreplicaset"),
    "an empty name counts as absent": (replicaset(template_name="", generate_name=""), "testreplicaset"),
    "cut to 58": (replicaset(template_name="x" * 70), "x" * 58),
    "quotes are escaped": (replicaset(template_name='q"\\'), 'q"\\'),
}


@pytest.mark.parametrize(("owner", "base"), BASES.values(), ids=BASES)
def test_r5_the_base_of_the_names(owner, base):
    metadata = created_for(owner)["metadata"]
    assert metadata["generateName"] == base
    assert metadata["name"][:-5] == base


def test_r5_the_spec_reaches_the_vmi_byte_for_byte():
    spec = b'{"domain" : {"n":1.10,"big":9223372036854775807,"u":"\\u00e9"}}'
    assert creates(replicaset(spec=spec))[0].body.endswith(b'"spec":' + spec + b"}")


HASHES = {
    "the order of fields": (b'{"domain":{"a":1,"b":2}}', b'{"domain": {"b": 2, "a": 1}}', True),
    "an old spelling": (
        b'{"domain":{"devices":{"disks":[{"disk":null,"volumeName":"v"}]}}}',
        b'{"domain":{"devices":{"disks":[{"disk":{},"name":"v"}]}}}',
        True,
    ),
    "empty fields that Go adds": (
        b'{"domain":{}}',
        b'{"domain":{"devices":{},"resources":{}},"volumes":[],"hostname":""}',
        True,
    ),
    "units": (b'{"domain":{"memory":{"guest":"1024Mi"}}}', b'{"domain":{"memory":{"guest":"1Gi"}}}', True),
    "an empty object with a meaning": (b'{"domain":{}}', b'{"domain":{"devices":{"rng":{}}}}', False),
    "another value": (b'{"domain":{"a":1}}', b'{"domain":{"a":2}}', False),
}


@pytest.mark.parametrize(("one", "other", "same"), HASHES.values(), ids=HASHES)
def test_r14_the_template_hash_depends_on_the_meaning_of_the_spec(one, other, same):
    one, other = (created_for(replicaset(spec=spec))["metadata"]["labels"][TEMPLATE_HASH] for spec in (one, other))
    assert (one == other) is same


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"uid": "another-uid"}, True),
        ({"replicas": 9}, True),
        ({"template_name": "another"}, True),
        ({"template_labels": {**LABELS, "more": "x"}}, False),
        ({"template_annotations": {"more": "x"}}, False),
    ],
)
def test_r14_the_template_hash_depends_only_on_fields_that_a_vmi_gets(changes, same):
    one, other = (
        created_for(owner)["metadata"]["labels"][TEMPLATE_HASH] for owner in (replicaset(), replicaset(**changes))
    )
    assert (one == other) is same


def test_r6_surplus_vmis_are_deleted_by_uid():
    owner = replicaset(replicas=1)
    (delete,) = plan(snapshot(owner, members(owner, 2))).actions
    assert isinstance(delete, Delete)
    assert (delete.key.name, delete.uid) == ("vm-0", "uid-vm-0")


def test_r6_no_more_than_the_burst_is_deleted_in_a_pass_and_the_plan_says_so():
    owner = replicaset(replicas=0)
    todo = plan(snapshot(owner, members(owner, 10), burst=4))
    assert len(todo.actions) == 4
    assert todo.held == "6 more deletes wait for the next pass"


def test_r6_protected_vmis_stay_and_one_notice_reports_it():
    owner = replicaset(replicas=1, generation=7)
    todo = plan(snapshot(owner, [*members(owner, 3, annotations={PROTECT: "true"}), vmi("other", owner=owner)]))
    assert [action.key.name for action in todo.actions] == ["other"]
    (notice,) = todo.notices
    assert (notice.reason, notice.warning, notice.once) == ("ProtectedFromDeletion", True, "protected 7 1")
    assert "2 surplus virtual machines stay (1 are wanted)" in notice.message
    assert todo.held == "2 surplus VMIs are protected"


def test_r6_a_malformed_cost_counts_as_zero_and_is_reported_once_for_each_value():
    owner = replicaset(replicas=1)
    costs = {"dear": "1", "odd": "cheap", "cheap": "-1"}
    vmis = [vmi(name, owner=owner, annotations={DELETION_COST: cost}) for name, cost in costs.items()]
    todo = plan(snapshot(owner, vmis))
    assert [action.key.name for action in todo.actions] == ["cheap", "odd"]
    (notice,) = todo.notices
    assert (notice.reason, notice.warning) == ("InvalidAnnotation", True)
    assert notice.message.startswith("VMI odd: ")
    assert "odd" not in notice.once
    assert '"cheap"' in notice.message
