"""R4 and R5: the number of created VMIs, and their content. R6: the deleted VMIs. R14: the hash of the template."""

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from controller import kubevirt
from controller.apimachinery.names import SAFE_ALPHABET
from controller.kubevirt.annotations import DELETION_COST, PROTECT, REMOVE, TEMPLATE_HASH
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.replicaset.plan import plan
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Create
from tests.builders import LABELS, NOW, OWNER_REFERENCE, members, replicaset, snapshot, vmi
from tests.strategies import template_hash_of


def creates(owner, *vmis, **circumstances) -> list[Create]:
    return [action for action in plan(snapshot(owner, vmis, **circumstances)).actions if isinstance(action, Create)]


def created_for(owner, **circumstances) -> dict:
    return msgspec.json.decode(creates(owner, **circumstances)[0].body)


@pytest.mark.parametrize(("replicas", "present", "what"), [(1000, 0, "996 more creates"), (0, 10, "6 more deletes")])
def test_r4_r6_no_more_than_the_burst_is_created_or_deleted_in_a_pass_and_the_plan_says_so(replicas, present, what):
    owner = replicaset(replicas=replicas)
    todo = plan(snapshot(owner, members(owner, present), burst=4))
    assert len(todo.actions) == 4
    assert todo.held == f"{what} wait for the next pass"


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


def with_disk(fields):
    return b'{"domain":{"devices":{"disks":[{' + fields + b"}]}}}"


BARE = b'{"domain":{}}'
HASHES = {
    "the order of fields": (b'{"domain":{"a":1,"b":2}}', b'{"domain": {"b": 2, "a": 1}}', True),
    "an old spelling": (with_disk(b'"disk":null,"volumeName":"v"'), with_disk(b'"disk":{},"name":"v"'), True),
    "empty fields of Go": (BARE, b'{"domain":{"devices":{},"resources":{}},"volumes":[],"hostname":""}', True),
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


def order(*vmis) -> list[str]:
    return [vmi.metadata.name for vmi in rank_for_removal(group_vmis(vmis), NOW)]


def cost(text):
    return {"annotations": {DELETION_COST: text}}


# Each row has two VMIs. The criterion puts the first VMI first. All lesser criteria would put the second VMI first.
CRITERIA = {
    "marked for removal, in any state": (
        vmi("z", annotations={REMOVE: "true"}, ready_for_s=9000, age_s=9000),
        vmi("a", node=None, phase="Pending", ready=None),
    ),
    "no node yet": (vmi("z", node=None, phase="Running", **cost("9")), vmi("a", phase="Pending", ready=None)),
    "pending, before running": (vmi("z", phase="Pending", **cost("9")), vmi("a", ready=False, **cost("-9"))),
    "scheduling, before running": (vmi("z", phase="Scheduling"), vmi("a", phase="Running", ready=False)),
    "scheduled, before running": (vmi("z", phase="Scheduled"), vmi("a", phase="Running", ready=False)),
    "cost before phase": (vmi("z", phase="Scheduled", ready=None, **cost("-1")), vmi("a", phase="Pending", ready=None)),
    "not ready": (vmi("z", ready=False), vmi("a", migrating=True, **cost("-9"))),
    "being migrated": (vmi("z", migrating=True), vmi("a", **cost("-9"))),
    "lower cost": (vmi("z", **cost("-1"), ready_for_s=9000, node="node-2"), vmi("a", ready_for_s=1)),
    "a malformed cost is 0": (vmi("z", **cost("cheap"), ready_for_s=9000), vmi("a", **cost("1"))),
    "ready for a shorter time": (vmi("z", ready_for_s=10, age_s=9000), vmi("a", ready_for_s=20, age_s=30)),
    "younger": (vmi("z", age_s=100), vmi("a", age_s=200)),
    "by name": (vmi("a"), vmi("b")),
    "another value is not a mark": (vmi("a"), vmi("b", annotations={REMOVE: "yes"})),
}


@pytest.mark.parametrize(("first", "second"), CRITERIA.values(), ids=CRITERIA)
def test_r6_each_criterion_outweighs_the_lesser_criteria(first, second):
    assert order(first, second) == order(second, first) == [first.metadata.name, second.metadata.name]


def test_r6_each_deletion_lowers_the_number_of_vmis_on_its_node():
    full = [vmi(f"full-{n}", node="full") for n in range(4)]
    half = [vmi(f"half-{n}", node="half") for n in range(2)]
    assert order(*full, *half) == ["full-0", "full-1", "full-2", "half-0", "full-3", "half-1"]


def test_r6_the_number_of_vmis_on_the_node_comes_after_cost_and_before_readiness_time():
    cheap = vmi("cheap", node="lone", annotations={DELETION_COST: "-1"})
    full = [vmi(f"full-{n}", node="full", ready_for_s=9000) for n in range(2)]
    assert order(*full, cheap, vmi("recent", node="other", ready_for_s=1))[:2] == ["cheap", "full-0"]


FROZEN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("template_hashes.json").read_text())
"""Templates with their hashes. Both are never edited; new templates may be added."""


@pytest.mark.parametrize("frozen", FROZEN, ids=[each["hash"] for each in FROZEN])
def test_r14_the_hash_of_a_stored_template_is_frozen(frozen):
    template = VMITemplate(msgspec.convert(frozen["metadata"], TemplateMeta), Raw(frozen["spec"].encode()))
    assert template_hash_of(replicaset(template=template, match_labels={"app": "web"})) == frozen["hash"]


def test_r14_the_table_of_types_for_the_hash_is_frozen():
    table = files(kubevirt).joinpath("hash_types.json").read_bytes()
    assert sha256(table).hexdigest() == "cc9f5b18f739e86e1f1e30b2995f361bff3f95aaee14c244f9757b163f8cd166"
