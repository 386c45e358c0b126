"""Both versions of Helm, and a cluster for a test's releases."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import CRD_DIRECTORIES, ControlPlane
from tests.charts.releases import Site, bare_plane
from tests.helm import Helm, helm_or_skip
from tools.chart.helm import MAJORS, HelmMissing, find_helm


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Helm before the first test, because the download takes longer than a test's timeout.

    If the download fails, the fixtures skip or fail the tests that need Helm, and give the reason.
    """
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if wanted & {"major", "helm", "site", "linted"}:
            with contextlib.suppress(HelmMissing):
                for major in MAJORS:
                    find_helm(major)


@pytest.fixture
def major(request: pytest.FixtureRequest) -> int:
    """The major version of Helm: the newest, or the parameter of a test that runs with each version."""
    chosen: int = getattr(request, "param", MAJORS[-1])
    helm_or_skip(chosen)
    return chosen


@pytest.fixture
def helm(major: int, tmp_path: Path) -> Helm:
    return Helm(major, tmp_path / "helm")


@pytest.fixture(scope="session")
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane with KubeVirt's VMs and VMIs, but without the project's kinds. Each release installs these
    kinds.
    """
    with bare_plane(control_plane_binaries, CRD_DIRECTORIES[1]) as plane:
        yield plane


@pytest.fixture
def site(plane: ControlPlane, major: int, tmp_path: Path) -> Iterator[Site]:
    """A namespace for a release, in a cluster without other releases."""
    site = Site.opened(plane, major, tmp_path)
    yield site
    site.close()
