"""Sets and pools that KubeVirt's own controllers have made: members without a mark of vmherd, and a revision in Go's
spelling (`resources: {}`), as in a recording of KubeVirt's controller.
"""

from collections.abc import Iterator

from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from tests.controlplane.documents import reference_to
from tests.fakes.requests import AnyResource, Document


def made_by_kubevirt(kind: str, owner: Document) -> Iterator[tuple[AnyResource, Document]]:
    """The members of a set or pool, and the revision of a pool. The names of disks get the ordinal of their VM."""
    name, spec = owner["metadata"]["name"], owner["spec"]
    common = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference_to(owner, block=True)]}
    if kind == "set":
        inner = spec["template"]
        for number in range(spec["replicas"]):
            metadata = {**inner["metadata"], **common, "name": f"{name}{number:05d}"}
            yield VMIS, {"metadata": metadata, "spec": inner["spec"], "status": {"phase": "Pending"}}
        return
    outer, revision = spec["virtualMachineTemplate"], f"{name}-1"
    pod = outer["spec"]["template"]
    go = {**pod["spec"], "domain": {**pod["spec"]["domain"], "resources": {}}}
    template = {**outer, "spec": {**outer["spec"], "template": {**pod, "spec": go}}}
    data = {**spec, "virtualMachineTemplate": template}
    yield CONTROLLER_REVISIONS, {"metadata": {**common, "name": revision}, "data": data, "revision": 1}
    for number in range(spec["replicas"]):
        marked = {"labels": {**outer["metadata"]["labels"], REVISION_NAME: revision}}
        inner = {"metadata": {"labels": {**pod["metadata"]["labels"], REVISION_NAME: revision}}, "spec": go}
        yield VMS, {"metadata": {**common, **marked, "name": f"{name}-{number}"}, "spec": _own(outer, inner, number)}


def _own(outer: Document, inner: Document, number: int) -> Document:
    """The spec of one VM. Its disk templates and the volumes that use them have its ordinal."""
    disks = [each["metadata"]["name"] for each in outer["spec"].get("dataVolumeTemplates") or ()]

    def numbered(volume: Document) -> Document:
        own = volume.get("dataVolume", {}).get("name") in disks
        return {**volume, "dataVolume": {"name": f"{volume['dataVolume']['name']}-{number}"}} if own else volume

    volumes = [numbered(each) for each in inner["spec"]["volumes"]]
    spec = {**outer["spec"], "template": {**inner, "spec": {**inner["spec"], "volumes": volumes}}}
    if disks:
        templates = outer["spec"]["dataVolumeTemplates"]
        spec["dataVolumeTemplates"] = [
            {**each, "metadata": {"name": f"{each['metadata']['name']}-{number}"}} for each in templates
        ]
    return spec
