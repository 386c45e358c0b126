from msgspec.json import encode

from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vms import disk_names_of


def test_a_vmi_keeps_only_the_conditions_that_are_read():
    types = ("Ready", "LiveMigratable", "HotVCPUChange", "AgentConnected", "Synchronized")
    conditions = [{"type": type_, "status": "True", "message": f"about {type_}"} for type_ in types]
    vmi = VMIS.decode(encode({"metadata": {"name": "vmi"}, "status": {"conditions": conditions}}))
    assert [(each.type, each.message) for each in vmi.status.conditions] == [
        ("Ready", "about Ready"),
        ("HotVCPUChange", "about HotVCPUChange"),
        ("Synchronized", "about Synchronized"),
    ]


def test_a_vm_keeps_only_the_volumes_with_disks():
    volumes = [
        {"name": "image", "containerDisk": {"image": "fedora"}},
        {"name": "data", "dataVolume": {"name": "data-0"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim-0"}},
    ]
    vm = VMS.decode(encode({"metadata": {"name": "vm"}, "spec": {"template": {"spec": {"volumes": volumes}}}}))
    assert len(vm.spec.template.spec.volumes) == 2
    assert disk_names_of(vm) == ("data-0", "claim-0")
