"""The simulated virt-api behind the real API server: users start, stop and restart VMs with its subresources."""

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from tests.controlplane.documents import vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually

GROUP_VERSION = "subresources.kubevirt.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class Subresources:
    def __init__(self, pools: PoolNamespace, name: str) -> None:
        self._admin = Admin(pools.plane.kubeconfig)
        self._path = f"/apis/{GROUP_VERSION}/namespaces/{pools.namespace}/virtualmachines/{name}"

    def put(self, subresource: str, **options: Any) -> bytes:
        return self._admin.send("PUT", f"{self._path}/{subresource}", json.dumps(options).encode(), "application/json")


@pytest.fixture
def served(pools: PoolNamespace) -> PoolNamespace:
    """The test's namespace. The API server serves the subresources."""

    def listed() -> list[str]:
        try:
            found = Admin(pools.plane.kubeconfig).get(f"/apis/{GROUP_VERSION}")["resources"]
        except Rejected:
            return []
        return [resource["name"] for resource in found]

    names = eventually(listed, what="the subresources are served")
    assert names == ["virtualmachines/start", "virtualmachines/stop", "virtualmachines/restart"]
    return pools


def uid_of_running_vmi(pools: PoolNamespace, name: str, *, other_than: str = "") -> str:
    """The UID of the VM's running VMI. The result is "" if no VMI runs, or if the UID is `other_than`."""
    vmi = pools.vmis().get(name)
    is_running = vmi is not None and (vmi.get("status") or {}).get("phase") == "Running"
    return vmi["metadata"]["uid"] if vmi is not None and is_running and vmi["metadata"]["uid"] != other_than else ""


def test_a_restart_replaces_the_vmi_of_a_manual_vm(served: PoolNamespace) -> None:
    served.make_vm("vm", template=vm_template(runStrategy="Manual"))
    user = Subresources(served, "vm")
    eventually(lambda: "status" in served.vms.get("vm"))
    user.put("start")
    before = eventually(lambda: uid_of_running_vmi(served, "vm"), what="the VM is started")
    user.put("restart")
    eventually(lambda: uid_of_running_vmi(served, "vm", other_than=before), what="the VM has a new VMI")
    user.put("stop")
    eventually(lambda: "vm" not in served.vmis(), what="the VM is stopped")
    assert served.vms.get("vm")["spec"]["runStrategy"] == "Manual"


def test_the_subresources_need_their_own_permission(served: PoolNamespace) -> None:
    served.make_vm("vm")
    path = f"/apis/{GROUP_VERSION}/namespaces/{served.namespace}/virtualmachines/vm/restart"
    asked = ("--as=someone", "--as-group=system:authenticated", "-f", "-")
    done = served.kubectl("replace", "--raw", path, *asked, stdin="{}", check=False)
    assert done.returncode
    assert "virtualmachines/restart" in done.stderr


def test_a_request_that_bypasses_the_api_server_is_refused(served: PoolNamespace) -> None:
    served.make_vm("vm")
    api_service = Admin(served.plane.kubeconfig).get(f"{API_SERVICES}/v1.subresources.kubevirt.io")
    port = api_service["spec"]["service"]["port"]
    path = f"/apis/{GROUP_VERSION}/namespaces/{served.namespace}/virtualmachines/vm/restart"
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", b"{}", method="PUT")
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10, context=unverified)
    refused.value.close()
    assert refused.value.code == 403
