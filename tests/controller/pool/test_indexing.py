"""P4 and P5: the VM that is created for an ordinal."""

import json
from copy import deepcopy

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import INDEX_SYSPREP, POOL_FINALIZER, REVISION_NAME
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.pool.spec.indexing import encode_disks, encode_shape, encode_vm
from controller.pool.spec.template import Template, parse_template
from controller.runtime.actions import Create
from tests.pool_builders import POOLS, intent_of, pool, snapshot, vm_spec
from tests.pool_strategies import wild_specs
from tests.sandbox.replay import RECORDINGS

BOTH = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}


def template_of(owner):
    template = intent_of(owner).template if owner.metadata.uid else parse_template(owner.spec)
    assert isinstance(template, Template), template
    return template


def made_of(owner, ordinal=7):
    ref = controller_reference(POOLS, owner.metadata)
    return json.loads(encode_vm(template_of(owner), ordinal, "web-1", owner.metadata, {"ownerReferences": (ref,)}))


def volume_of(volume, **fields):
    """Create a VM from a template that has `volume` and a dataVolumeTemplate `data`. Return the volume of the VM."""
    spec = vm_spec(disks=["data"], volumes=[{"name": "x", **volume}])
    return made_of(pool(spec=spec, **fields))["spec"]["template"]["spec"]["volumes"][-1]


def test_p4_what_is_created():
    owner = pool(name="vms", template_annotations={"note": "hi"}, labels={"app": "web", "more": "x"})
    assert made_of(owner, 3) == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": "vms-3",
            "namespace": "default",
            "labels": {"app": "web", "more": "x", REVISION_NAME: "web-1"},
            "annotations": {"note": "hi"},
            "ownerReferences": [
                {
                    "apiVersion": "pool.kubevirt.io/v1beta1",
                    "kind": "VirtualMachinePool",
                    "name": "vms",
                    "uid": "uid-of-the-pool",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": vm_spec(labels={"app": "web", REVISION_NAME: "web-1"}),
    }


@pytest.mark.parametrize(("state", "finalizers"), [("Disabled", None), ("Offline", [POOL_FINALIZER])])
def test_p4_p6_a_vm_is_created_with_the_finalizer_only_if_its_disks_are_kept(state, finalizers):
    owner = pool(replicas=1, scaleInStrategy={"proactive": {"statePreservation": state}})
    [create] = [each for each in plan(snapshot(owner)).actions if isinstance(each, Create) and each.resource is VMS]
    assert json.loads(create.body)["metadata"].get("finalizers") == finalizers


def test_p4_name_and_namespace_in_the_template_are_ignored():
    meta = {"name": "x", "namespace": "y", "generateName": "z", "labels": {"app": "web"}}
    metadata = made_of(pool(namespace="here", virtualMachineTemplate={"metadata": meta, "spec": vm_spec()}))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("web-7", "here")
    assert "generateName" not in metadata


def test_p5_each_data_volume_template_and_its_volumes_get_the_ordinal():
    claim = {"name": "second", "persistentVolumeClaim": {"claimName": "root-disk", "hotpluggable": True}}
    spec = made_of(pool(spec=vm_spec(disks=["data", "root-disk"], volumes=[claim])), 12)["spec"]
    assert [disk["metadata"]["name"] for disk in spec["dataVolumeTemplates"]] == ["data-12", "root-disk-12"]
    assert spec["template"]["spec"]["volumes"] == [
        {"name": "root", "containerDisk": {"image": "v1"}},
        {"name": "data", "dataVolume": {"name": "data-12"}},
        {"name": "root-disk", "dataVolume": {"name": "root-disk-12"}},
        {"name": "second", "persistentVolumeClaim": {"claimName": "root-disk-12", "hotpluggable": True}},
    ]


AS_WRITTEN = {
    "a DataVolume without a dataVolumeTemplate": {"dataVolume": {"name": "golden"}},
    "a claim without a dataVolumeTemplate": {"persistentVolumeClaim": {"claimName": "shared"}},
    "an ephemeral disk": {"ephemeral": {"persistentVolumeClaim": {"claimName": "data"}}},
    "a service account": {"serviceAccount": {"serviceAccountName": "data"}},
    "a host disk": {"hostDisk": {"path": "/data", "type": "Disk"}},
    "an unknown type of volume": {"later": {"name": "data", "secretRef": {"name": "data"}}},
}


@pytest.mark.parametrize("volume", AS_WRITTEN.values(), ids=AS_WRITTEN)
def test_p5_other_references_stay_as_written(volume):
    assert volume_of(volume, nameGeneration=BOTH) == {"name": "x", **volume}


BOTH_REFERENCES = {"secretRef": {"name": "a"}, "networkDataSecretRef": {"name": "b"}, "userData": "#"}
BOTH_INDEXED = {"secretRef": {"name": "a-7"}, "networkDataSecretRef": {"name": "b-7"}, "userData": "#"}
SECRETS = {
    "two references": ({"cloudInitNoCloud": BOTH_REFERENCES}, {"cloudInitNoCloud": BOTH_INDEXED}),
    "a Secret": ({"secret": {"secretName": "s", "x": 1}}, {"secret": {"secretName": "s-7", "x": 1}}),
    **{
        f"{source}, {field}": ({source: {field: {"name": "s"}, "x": 1}}, {source: {field: {"name": "s-7"}, "x": 1}})
        for source in ("cloudInitNoCloud", "cloudInitConfigDrive")
        for field in ("secretRef", "networkDataSecretRef")
    },
}


MAP, INDEXED_MAP = ({"configMap": {"name": each, "optional": True}} for each in ("c", "c-7"))
TO_CONFIG_MAPS, TO_SECRETS = ({f"appendIndexTo{kind}Refs": True} for kind in ("ConfigMap", "Secret"))
INDEXED = {
    "a ConfigMap": (TO_CONFIG_MAPS, TO_SECRETS, MAP, INDEXED_MAP),
    **{name: (TO_SECRETS, TO_CONFIG_MAPS, *volumes) for name, volumes in SECRETS.items()},
}


@pytest.mark.parametrize(("asked", "other", "volume", "indexed"), INDEXED.values(), ids=INDEXED)
def test_p5_references_get_the_ordinal_when_the_pool_asks_for_it(asked, other, volume, indexed):
    assert volume_of(volume, nameGeneration=asked) == {"name": "x", **indexed}
    assert volume_of(volume, nameGeneration=other) == {"name": "x", **volume}
    assert volume_of(volume) == {"name": "x", **volume}


SYSPREP = {
    "a ConfigMap": ({"configMap": {"name": "c"}}, "appendIndexToConfigMapRefs", {"configMap": {"name": "c-7"}}),
    "a Secret": ({"secret": {"name": "s"}}, "appendIndexToSecretRefs", {"secret": {"name": "s-7"}}),
}


@pytest.mark.parametrize(("source", "setting", "indexed"), SYSPREP.values(), ids=SYSPREP)
def test_p5_references_of_sysprep_get_the_ordinal_only_with_the_annotation(source, setting, indexed):
    asked, volume = {INDEX_SYSPREP: "true"}, {"sysprep": source}
    assert volume_of(volume, nameGeneration=BOTH) == {"name": "x", **volume}
    assert volume_of(volume, nameGeneration=BOTH, annotations={INDEX_SYSPREP: "True"}) == {"name": "x", **volume}
    assert volume_of(volume, annotations=asked) == {"name": "x", **volume}
    assert volume_of(volume, nameGeneration={setting: True}, annotations=asked) == {"name": "x", "sysprep": indexed}


def test_p5_the_older_names_of_the_index_settings_work():
    older = {"appendPostfixToSecretReferences": True, "appendPostfixToConfigMapReferences": True}
    for fields in (older, {"nameGeneration": older}):
        assert volume_of({"secret": {"secretName": "s"}}, **fields)["secret"] == {"secretName": "s-7"}
        assert volume_of({"configMap": {"name": "c"}}, **fields)["configMap"] == {"name": "c-7"}


def test_p5_unknown_fields_reach_the_vm_byte_for_byte():
    unusual = b'{"big" : 123456789012345678901234567890,"f":1.10,"e":1E2,"u":"\\u00e9\\/",  "n":null}'
    spec = (
        b'{"running" : true,"x":' + unusual + b',"template":{"spec":{"domain":' + unusual + b',"volumes":['
        b'{"name":"data","dataVolume":{"name":"data","y":' + unusual + b'}},{"later":' + unusual + b"}]}},"
        b'"dataVolumeTemplates":[{"metadata":{"name":"data","z":' + unusual + b'},"spec":' + unusual + b"}]}"
    )
    template = b'{"metadata":{"labels":{"app":"web"}},"spec":' + spec + b"}"
    owner = POOLS.decode(b'{"spec":{"virtualMachineTemplate":' + template + b"}}")
    shape = encode_shape(template_of(owner), 7, "web-1")
    assert shape.count(unusual) == 6
    assert b'"dataVolume":{"name":"data-7","y"' in shape
    assert b'"metadata":{"name":"data-7","z"' in shape


@given(wild_specs, st.integers(0, 3))
def test_p5_every_template_gives_a_vm_with_the_same_fields(spec, ordinal):
    template = parse_template(pool(spec=spec, nameGeneration=BOTH).spec)
    assume(isinstance(template, Template))
    shape = json.loads(encode_shape(template, ordinal, "web-1"))
    assert shape["spec"].keys() == json.loads(msgspec.json.encode(spec)).keys()
    assert shape["metadata"]["labels"][REVISION_NAME] == "web-1"


MALFORMED = {
    "disks are null": {"dataVolumeTemplates": None},
    "disks are an object": {"dataVolumeTemplates": {"name": "data"}},
    "a disk is null": {"dataVolumeTemplates": [None, {"metadata": None}, {"metadata": []}]},
    "a disk's name is a list": {"dataVolumeTemplates": [{"metadata": {"name": ["data"]}}]},
    "volumes are an object": {"template": {"spec": {"volumes": {"name": "data"}}}},
    "a volume is null": {"template": {"spec": {"volumes": [None, 7, "x", {"dataVolume": None}]}}},
    "a reference is a list": {"template": {"spec": {"volumes": [{"dataVolume": {"name": ["data"]}}]}}},
    "a reference is a number": {"template": {"spec": {"volumes": [{"secret": {"secretName": 7}}]}}},
    "a reference is empty": {"template": {"spec": {"volumes": [{"secret": {"secretName": ""}}]}}},
    "the VMI's metadata is a list": {"template": {"metadata": [], "spec": {}}},
    "the VMI's labels are a text": {"template": {"metadata": {"labels": "app=web"}, "spec": {}}},
}


@pytest.mark.parametrize("spec", MALFORMED.values(), ids=MALFORMED)
def test_p1_values_of_an_unexpected_type_are_sent_unchanged(spec):
    spec = {"template": {"spec": {}}, **spec}
    shape = json.loads(encode_shape(template_of(pool(spec=spec, nameGeneration=BOTH)), 7, "web-1"))["spec"]
    metadata = shape["template"].pop("metadata", None)
    expected = {**spec, "template": {key: value for key, value in spec["template"].items() if key != "metadata"}}
    assert shape == expected
    assert metadata == spec["template"].get("metadata", {"labels": {REVISION_NAME: "web-1"}})


@pytest.mark.parametrize("adopted", [False, True], ids=["member", "adopted, so its revision is not known"])
def test_p12_the_disk_of_a_virtual_machine_restore_stays_in_its_vm(adopted: bool):
    """The real restore gave the disk another name, also in dataVolumeTemplates. The template changes other fields."""
    recording = json.loads((RECORDINGS / "pool-vm-restored.json").read_text())
    spec, restored = recording["pool"]["virtualMachineTemplate"]["spec"], recording["after"]
    new = deepcopy(spec)
    new["dataVolumeTemplates"][0]["spec"]["storage"]["resources"]["requests"]["storage"] = "2Gi"
    new["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = "#cloud-config new"
    before, after = (template_of(pool("res", spec=each)) for each in (spec, new))
    old = encode_disks(after, 0) if adopted else encode_shape(before, 0, "res-1")
    patch = json.loads(VM_RULES.merge(json.dumps(restored).encode(), old, encode_shape(after, 0, "res-2")) or b"")
    [root, seed] = patch["spec"]["template"]["spec"]["volumes"]
    assert root == restored["spec"]["template"]["spec"]["volumes"][0]
    assert root["dataVolume"]["name"].startswith("restore-")
    assert seed["cloudInitNoCloud"]["userData"] == "#cloud-config new"
    assert "dataVolumeTemplates" not in patch["spec"]
