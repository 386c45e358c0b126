"""One real node for all tests of this folder, with the image of the Dockerfile."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import CRD_DIRECTORIES
from tests.charts.releases import Site
from tests.controlplane.programs import simulator
from tests.helm import helm_or_skip
from tests.realnode import image
from tests.realnode.node import Node, Programs, running_node
from tests.realnode.release import Release
from tools.chart.helm import HelmMissing, find_helm


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the node's programs before the first test, because that takes longer than a test's timeout.

    If that fails, the fixtures skip or fail the tests, and give the reason.
    """
    needed = any("real_node" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not needed:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    missing = (pytest.skip.Exception, pytest.fail.Exception, HelmMissing)
    with capture.global_and_fixture_disabled(), contextlib.suppress(*missing):
        Programs()
        image.built()
        find_helm(4)


@pytest.fixture(scope="session")
def real_node(control_plane_binaries: Binaries) -> Iterator[Node]:
    """A node with the controller's image, in a cluster with KubeVirt's VMs but without the project's kinds."""
    built = image.built()
    with running_node(control_plane_binaries, CRD_DIRECTORIES[1]) as node:
        node.load(built)
        yield node


@contextlib.contextmanager
def opened(node: Node, home: Path) -> Iterator[Release]:
    """A namespace in which the level `restricted` is enforced, without a release."""
    helm_or_skip(4)
    site = Site.opened(node.plane, 4, home)
    logs = ("logs", "--selector=app.kubernetes.io/component=controller", "--tail=20", "--prefix")
    try:
        yield Release(site, node)
        print(site.kubectl(*logs, check=False).stdout)  # pytest shows it if the test has failed
    finally:
        site.close()


@pytest.fixture
def bare(real_node: Node, tmp_path: Path) -> Iterator[Release]:
    """A namespace without a release. The simulator plays KubeVirt."""
    with opened(real_node, tmp_path) as release, simulator(real_node.plane):
        yield release


@pytest.fixture
def idle(real_node: Node, tmp_path: Path) -> Iterator[Release]:
    """Two running Pods with the default values. Nothing runs the VMIs."""
    with opened(real_node, tmp_path) as release:
        release.install()
        yield release
