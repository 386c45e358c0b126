"""The examples of CONTRIBUTING.md on the control plane run."""

import pytest

from conformance.api import Api
from conformance.case import Kind
from conformance.namespace import Conditions
from conformance.replica_sets import ReplicaSets
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from tests.conformance.stored_objects import SUBJECT
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.programs import ControllerProcess
from tests.faults.proxy.threads import ThreadedProxy
from tests.test_contributing import example, run_example

pytestmark = pytest.mark.cluster


def test_the_example_of_the_control_plane(pools: PoolNamespace) -> None:
    run_example("A test on the control plane", pools=pools)


async def test_the_example_of_a_conformance_case(pools: PoolNamespace) -> None:
    [case] = example("A conformance case")["cases"].of(Kind.SETS)
    async with open_client(await load_credentials(str(pools.plane.kubeconfig)), user_agent="tests") as client:
        await case.check(ReplicaSets(Api(client), pools.namespace, SUBJECT, Conditions(image="cirros")))


def test_the_example_of_a_fault(idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess) -> None:
    run_example("A fault", idle_namespace=idle_namespace, proxy=proxy, proxied=proxied)
