"""The subresources of the simulated virt-api behind the real API server: who may use them, and restarts (P13)."""

import ssl
import urllib.error
import urllib.request

import pytest

from sandbox.admin import Admin, Rejected
from tests.controlplane.documents import READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually
from tests.controlplane.watch import watched
from tests.integration.renewal import memories, restarts

GROUP_VERSION = "subresources.kubevirt.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


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


def test_p13_vms_that_kubevirt_does_not_start_again_are_restarted_through_the_subresource(pools: PoolNamespace) -> None:
    template = vm_template(vmi_annotations={READY_AFTER: "50ms"}, runStrategy="RerunOnFailure")
    pools.make(2, template=template, maxUnavailable=1)
    pools.wait_ready(2)
    position = pools.plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        pools.change_memory("128M")
        pools.wait_ready(2, within_s=60)
    assert set(memories(pools.vmis()).values()) == {"128M"}
    assert seen.least_ready() == {"pool": 1}
    assert restarts(pools, since=position) == []
    sent = [record.name for record in pools.requests("update", since=position)]
    assert sorted(sent) == ["pool-0", "pool-1"], "one request for each VM"
