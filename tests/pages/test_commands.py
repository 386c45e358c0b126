"""Runs the commands of the tutorial and of the how-to pages on real sandboxes, in order and as they are written."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from sandbox.processes import free_ports
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.helm import helm_or_skip
from tests.integration.kubevirt_installation import KubeVirtInstallation, with_kubevirts_status
from tests.integration.metrics_api import metrics_api
from tests.integration.test_modes import DEFINITION, HCO, Managed
from tests.pages.commands import Step, steps_of
from tests.pages.session import PATH, ROOT, Ports, Session, session

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(900)]

DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
STARTS_A_SANDBOX, STARTS_VMHERD = 3, 2
"""The number of commands with which the tutorial starts a sandbox, and then vmherd."""

HOW_TO = DOCS / "how-to"
AUTOSCALE, SCALING = HOW_TO / "autoscale.md", DOCS / "scaling.md"
MOVE, OPENSHIFT = HOW_TO / "move-from-kubevirt.md", HOW_TO / "openshift.md"
ALONE = {AUTOSCALE, MOVE, OPENSHIFT}
ON_A_LAB = [
    *(page for page in sorted(HOW_TO.glob("*.md")) if page not in ALONE and steps_of(page)),
    DOCS / "upgrading.md",
]
"""The pages that need only a sandbox and vmherd."""

PAGES = {TUTORIAL, SCALING, *ALONE, *ON_A_LAB}
"""The pages whose commands these tests run."""

OPERATED_EVERY_S = 0.5


class Lab(Struct, frozen=True):
    """A sandbox and vmherd, as the tutorial starts them."""

    kubeconfig: Path
    ports: Ports

    @property
    def variables(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.kubeconfig, "default")


def play(steps: list[Step], shell: Session) -> None:
    for step in steps:
        if not step.not_run:
            shell.play(step)


@contextmanager
def opened(directory: Path, *, with_vmherd: bool) -> Iterator[Lab]:
    """Do the first steps of the tutorial, and keep the sandbox while the block runs."""
    ports = Ports(*free_ports(2))
    with session(directory, ports) as shell:
        first = [step for step in steps_of(TUTORIAL) if not step.not_run]
        play(first[: 1 + STARTS_A_SANDBOX + (STARTS_VMHERD if with_vmherd else 0)], shell)
        yield Lab(directory / "home" / "vmherd-sandbox" / "kubeconfig", ports)


@pytest.fixture(scope="module")
def lab(control_plane_binaries: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened(tmp_path_factory.mktemp("lab") / "user", with_vmherd=True) as lab:
        yield lab


@pytest.fixture
def clean(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.kubectl("delete", "vmpool,vmirs,hpa,vm,vmi,dv", "--all")


@pytest.fixture
def helm(tmp_path: Path) -> dict[str, str]:
    """The variable PATH, with a directory that has Helm."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "helm").symlink_to(helm_or_skip(4))
    return {"PATH": f"{folder}:{PATH}"}


@pytest.mark.usefixtures("control_plane_binaries")
def test_each_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    with session(tmp_path / "user", Ports(*free_ports(2))) as shell:
        play(steps_of(TUTORIAL), shell)


@pytest.mark.parametrize("page", ON_A_LAB, ids=lambda page: page.stem)
def test_each_command_of_a_page_on_a_lab_does_what_the_page_shows(
    page: Path, clean: Lab, helm: dict[str, str], tmp_path: Path
) -> None:
    if page.stem == "gitops":
        clean.kubectl("create", "namespace", "argocd")
        clean.kubectl("create", "configmap", "argocd-cm", "--namespace", "argocd")
    with session(tmp_path / "user", clean.ports, clean.variables | helm) as shell:
        play(steps_of(page), shell)


def test_each_command_of_the_page_about_autoscaling_does_what_the_page_shows(clean: Lab, tmp_path: Path) -> None:
    """The test serves a metrics API. All VMs together use a quarter of a core."""
    with metrics_api(clean) as metrics, session(tmp_path / "user", clean.ports, clean.variables) as shell:
        metrics.load("default", 250)
        play(steps_of(AUTOSCALE), shell)


@pytest.mark.usefixtures("control_plane_binaries")
def test_each_command_of_the_page_about_scaling_does_what_the_page_shows(tmp_path: Path) -> None:
    """Two processes share a sandbox. Each of them works only in its namespaces."""
    with (
        opened(tmp_path / "start", with_vmherd=False) as lab,
        session(tmp_path / "user", lab.ports, lab.variables) as shell,
    ):
        play(steps_of(SCALING), shell)


@contextmanager
def operated(installation: KubeVirtInstallation) -> Iterator[None]:
    """Act as virt-operator while the block runs."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(OPERATED_EVERY_S):
            installation.operate()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.usefixtures("control_plane_binaries")
def test_each_command_of_the_pages_about_kubevirt_does_what_the_pages_show(
    helm: dict[str, str], tmp_path: Path
) -> None:
    """The cluster has an imitation of KubeVirt with a pool at rest, and then an imitation of HyperConverged."""
    with ExitStack() as stack:
        lab = stack.enter_context(opened(tmp_path / "start", with_vmherd=False))
        with session(tmp_path / "before", lab.ports, lab.variables) as shell:
            for command in (
                "vmherd run > /dev/null 2>&1 &",
                "kubectl apply -f docs/examples/web.yaml",
                "kubectl wait vmpool/web --for=jsonpath='{.status.printableStatus}'=Running --timeout=60s",
            ):
                assert shell.run(command)[0] == 0
        installation = KubeVirtInstallation(lab)
        installation.install()
        with_kubevirts_status(lab)
        with operated(installation), session(tmp_path / "user", lab.ports, lab.variables) as shell:
            play(steps_of(MOVE), shell)
        installation.kubectl.apply(DEFINITION)
        eventually(
            lambda: installation.kubectl("get", HCO, check=False).returncode == 0, what="HyperConverged is served"
        )
        Managed(installation).manage("[]")
        with session(tmp_path / "openshift", lab.ports, lab.variables | helm) as shell:
            play(steps_of(OPENSHIFT), shell)
