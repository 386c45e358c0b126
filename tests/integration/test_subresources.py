"""The subresources of the simulated virt-api behind the real API server: who may use them."""

import ssl
import urllib.error
import urllib.request

import pytest

from sandbox.admin import Admin, Rejected
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually

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
    assert names == [
        *(f"virtualmachines/{each}" for each in ("start", "stop", "restart")),
        *(f"virtualmachineinstances/{each}" for each in ("pause", "unpause")),
    ]
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
