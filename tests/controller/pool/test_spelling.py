"""P12: templates are compared by meaning. Another spelling of a pool, revision or VM changes nothing."""

import json
from copy import deepcopy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from controller.pool.plan import plan
from controller.pool.spec.template import Template, describe_difference, parse_template
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, ThreeWayMerge
from tests.pool_builders import POOLS, pool, revision, snapshot, vm_spec, vmi, vms
from tests.spelling import RECORDINGS, paths_where_presence_matters, respelled, vm_specs, with_presence

RECORDED = ["kubevirt-pool-revision", "kubevirt-pool-revision-unit", "kubevirt-pool-revision-nosize"]


def kept(spec, *, number=1):
    """A revision with this VM spec, from an earlier generation of the pool.

    The generation alone does not show whether the revision is current, so the plan must compare the templates.
    """
    return revision(pool(spec=spec), f"web-{number}", number=number)


def seen(spec, revisions, *, generation=7, **fields):
    owner = pool(spec=spec, generation=generation, **fields)
    return snapshot(owner, vms(owner, 0, 1, 2, revision="web-1"), revisions=revisions)


def shape(spec):
    return msgspec.json.encode({"metadata": {"labels": {"app": "web"}}, "spec": spec})


def live(spec):
    metadata = {"name": "web-0", "uid": "u", "resourceVersion": "1", "labels": {"app": "web"}}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


@given(st.data(), vm_specs())
def test_p12_a_pool_or_a_revision_in_another_spelling_plans_nothing(data, spec):
    for_pool, for_revision = data.draw(respelled(spec)), data.draw(respelled(spec))
    assert plan(seen(for_pool, [kept(for_revision)])).actions == ()


@given(st.data(), vm_specs())
def test_p12_a_vm_in_another_spelling_is_not_patched(data, spec):
    current, old, new = (data.draw(respelled(spec)) for _ in range(3))
    assert VM_RULES.merge(live(current), shape(old), shape(new)) is None


@given(st.data(), vm_specs(), st.sampled_from(paths_where_presence_matters()))
def test_p12_an_empty_object_that_has_a_meaning_is_a_change(data, spec, path):
    changed = with_presence(spec, path)
    before, after = data.draw(respelled(spec)), data.draw(respelled(changed))
    actions = plan(seen(after, [kept(before)])).actions
    if changed == spec:
        assert actions == ()
    else:
        assert {type(action) for action in actions} == {Create, ThreeWayMerge}


@given(st.data(), vm_specs(), vm_specs())
def test_p12_the_spelling_of_two_templates_does_not_change_the_plan(data, old, new):
    def steps(before, after):
        owner = pool(spec=after, generation=7, maxUnavailable=3)
        machines = vms(owner, 0, 1, 2, revision="web-7")
        started = [vmi(each, revision="web-1") for each in machines]
        todo = plan(snapshot(owner, machines, vmis=started, revisions=[kept(before), revision(owner, "web-7")]))
        return [(type(each), each.resource.plural, each.key) for each in todo.actions]

    assert steps(old, new) == steps(data.draw(respelled(old)), data.draw(respelled(new)))


@pytest.mark.parametrize("number", [1, 7], ids=["of an older generation", "of this generation"])
@pytest.mark.parametrize("name", RECORDED)
def test_p12_a_pool_with_a_revision_by_kubevirt_plans_nothing(name, number):
    recorded = json.loads((RECORDINGS / f"{name}.json").read_text())
    assert plan(taken_over(recorded["pool"], recorded["revision"], number=number)).actions == ()


def test_p12_a_revision_as_kubevirt_1_7_writes_it_is_current():
    recorded = json.loads((RECORDINGS / "kubevirt-pool-revision.json").read_text())
    written = deepcopy(recorded["revision"])
    template = written["data"]["virtualMachineTemplate"]
    template["metadata"]["creationTimestamp"] = None
    template["spec"]["template"]["metadata"]["creationTimestamp"] = None
    for disk in template["spec"]["dataVolumeTemplates"]:
        disk["metadata"]["creationTimestamp"] = None
    found = taken_over(recorded["pool"], written, number=1)
    assert plan(found).actions == ()
    assert next_status(found, ()).updated_replicas == 2


def taken_over(document, written, *, number):
    """A recorded pool in generation 7. The pool has the recorded revision `written`, with the revision number `number`.
    Two VMs use this revision.
    """
    document["metadata"]["generation"] = 7
    document["spec"]["replicas"] = 2
    owner = POOLS.decode(msgspec.json.encode(document))
    kept_revision: ControllerRevision = CONTROLLER_REVISIONS.decode(msgspec.json.encode(written))
    name, machine = written["metadata"]["name"], document["spec"]["virtualMachineTemplate"]["spec"]
    machines = vms(
        owner,
        0,
        1,
        namespace=owner.metadata.namespace,
        labels=document["spec"]["selector"]["matchLabels"],
        revision=name,
        spec=machine,
    )
    return snapshot(owner, machines, revisions=[replace(kept_revision, revision=number)])


def test_p13_a_disk_differs_only_if_its_name_or_spec_differs():
    """If only the metadata of a dataVolumeTemplate changes, the VM is not recreated."""
    spec, other = vm_spec(disks=["data"]), vm_spec(disks=["data"])
    other["dataVolumeTemplates"][0]["metadata"]["annotations"] = {"cdi.kubevirt.io/priority": "high"}
    owner = pool(spec=other, generation=7)
    machines = vms(owner, 0, revision="web-7")
    started = [vmi(machines[0], revision="web-1")]
    owner = replace(owner, spec=replace(owner.spec, replicas=1))
    todo = plan(snapshot(owner, machines, vmis=started, revisions=[kept(spec), revision(owner, "web-7")]))
    assert [action for action in todo.actions if isinstance(action, Delete)] == []
    assert template_of(spec).disks == template_of(other).disks
    assert template_of(spec).disks != template_of(vm_spec(disks=["data"], storage_class="slow")).disks
    assert template_of(spec).disks == template_of(vm_spec(disks=["data"], size="1024Mi")).disks


def test_p12_the_description_of_a_difference_names_the_fields():
    one, other = template_of(vm_spec(image="v1")), template_of(vm_spec(image="v2", disks=["data"]))
    assert describe_difference(one, one) == ""
    assert "spec.dataVolumeTemplates" in describe_difference(one, other)


def template_of(spec):
    template = parse_template(pool(spec=spec).spec)
    assert isinstance(template, Template)
    return template
