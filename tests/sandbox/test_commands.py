"""`vmherd sandbox up` and `down`, as a user types them, and the definitions of `vmherd sandbox conformance`."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller import logs
from controller.kinds import POOLS
from sandbox import commands, simulator
from sandbox.binaries import PROGRAMS, Binaries
from sandbox.commands import under_own_group, with_status
from sandbox.processes import is_running
from sandbox.running import Home, Simulate
from sandbox.settings import SimulationSettings
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.programs import commands_about, finished, processes_about

SANDBOX = [sys.executable, "-m", "controller", "sandbox"]
UP_WITHIN_S = 100


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return finished([*SANDBOX, *arguments], env={**os.environ, **environment}, within_s=UP_WITHIN_S)


@contextmanager
def default_signals() -> Iterator[None]:
    """Reset the signal handlers while a process starts.

    Under nohup, SIGHUP is ignored. Without the reset, the new process ignores SIGHUP, too.
    """
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Foreground:
    """`up` in the foreground, with its output in a file."""

    def __init__(self, directory: Path, output: Path, *options: str, **environment: str) -> None:
        self.directory = directory
        self.output = output
        command = [*SANDBOX, "up", "--dir", str(directory), *options]
        with output.open("w") as out, default_signals():
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def wait_until_ready(self) -> None:
        eventually(
            lambda: "Stop it with Ctrl-C" in self.output.read_text() or self.process.poll() is not None,
            within_s=UP_WITHIN_S,
        )
        assert self.process.poll() is None, self.output.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a test's sandbox. The sandbox is stopped even if the test fails."""
    directory = tmp_path / "sandbox"
    yield directory
    if directory.exists():
        run("down", "--dir", str(directory))


@pytest.fixture(scope="module")
def background(tmp_path_factory: pytest.TempPathFactory, control_plane_binaries: object) -> Iterator[Path]:
    """The directory of the sandbox that `detached` starts."""
    directory = tmp_path_factory.mktemp("detached") / "sandbox"
    yield directory
    run("down", "--dir", str(directory))


@pytest.fixture
def detached(background: Path) -> Path:
    """The directory of a sandbox that runs in the background. If a test has stopped the sandbox, it starts again."""
    if Home(background).state() is None:
        done = run("up", "--dir", str(background), "--detach")
        assert done.returncode == 0, done.stderr
    return background


@pytest.mark.cluster
def test_up_prints_how_to_use_a_sandbox_whose_kubeconfig_is_private_and_whose_vmis_are_simulated(
    detached: Path,
) -> None:
    output = (detached / "logs" / "sandbox.log").read_text()
    assert output.startswith("control plane: etcd, ")
    assert re.search(r"^the sandbox is ready after \d+\.\d s;", output, re.MULTILINE)
    assert f"export KUBECONFIG={detached}/kubeconfig\n" in output
    assert f"vmherd sandbox down --dir {detached}" in output
    kubectl = Kubectl(detached / "kubeconfig", "default")
    assert (detached / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert kubectl("auth", "can-i", "*", "*").stdout == "yes\n"
    assert kubectl("get", "vmirs,vmi,vm").returncode == 0
    vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "simulated"}}
    kubectl.apply({**vmi, "spec": {"domain": {"devices": {}}}})
    kubectl("wait", "--for=condition=Ready", "vmi/simulated", "--timeout=60s")


@pytest.mark.cluster
@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_a_second_up_in_the_same_directory_does_not_disturb_the_first(detached: Path, options: list[str]) -> None:
    state = Home(detached).state()
    done = run("up", "--dir", str(detached), *options)
    assert done.returncode == 1
    assert re.fullmatch(r"vmherd: a sandbox already runs in \S+ \(process \d+\)\n", done.stderr.splitlines(True)[-1])
    assert Home(detached).state() == state
    assert state is not None
    assert is_running(state.pid)
    assert all(any(program in each for each in processes_about(detached)) for program in PROGRAMS)


@pytest.mark.cluster
def test_down_stops_what_up_started_and_nothing_else(detached: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", str(detached)], stdin=subprocess.PIPE) as stranger:
        state = Home(detached).state()
        assert state is not None
        done = run("down", "--dir", str(detached))
        assert (done.returncode, done.stderr) == (0, "")
        assert all(program in done.stdout for program in PROGRAMS)
        assert not is_running(state.pid)
        assert len(processes_about(detached)) == 1
        assert stranger.poll() is None
        stranger.kill()
    assert {path.name for path in detached.iterdir()} == {"logs", "sandbox.lock"}
    assert run("down", "--dir", str(detached)).stdout == f"no sandbox runs in {detached}\n"


@pytest.fixture
def endless_start(control_plane_binaries: Binaries, tmp_path: Path) -> dict[str, str]:
    """The variables of a sandbox that never becomes ready, because its controller manager does nothing."""
    assets = tmp_path / "assets"
    assets.mkdir()
    for program in PROGRAMS:
        (assets / program).symlink_to(control_plane_binaries[program])
    manager = assets / "kube-controller-manager"
    manager.unlink()
    manager.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import time; time.sleep(600)" "$@"\n')
    manager.chmod(0o755)
    return {"KUBEBUILDER_ASSETS": str(assets)}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("moment", "options"),
    [
        *((each, ()) for each in ("sandbox.lock", "logs/etcd.log", "logs/kube-controller-manager.log")),
        ("logs/etcd.log", ("--detach",)),
    ],
)
def test_ctrl_c_during_the_start_leaves_no_process_in_the_foreground_or_background(
    directory: Path, tmp_path: Path, endless_start: dict[str, str], moment: str, options: tuple[str, ...]
) -> None:
    up = Foreground(directory, tmp_path / "output", *options, **endless_start)
    eventually((directory / moment).exists)
    assert up.end(signal.SIGINT) == 130
    assert processes_about(directory) == []
    assert "Traceback" not in up.output.read_text()


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_a_sandbox_that_is_killed_takes_its_parts_with_it_and_can_be_started_again_until_ctrl_c(
    directory: Path, tmp_path: Path
) -> None:
    up = Foreground(directory, tmp_path / "output", "--no-simulator")
    up.wait_until_ready()
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    eventually(lambda: processes_about(directory) == [])
    assert (directory / "kubeconfig").exists()

    again = Foreground(directory, tmp_path / "output")
    again.wait_until_ready()
    assert again.end(signal.SIGINT) == 0
    assert processes_about(directory) == []
    assert not (directory / "kubeconfig").exists()
    assert "Traceback" not in again.output.read_text()


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_a_part_that_ends_by_itself_ends_the_sandbox_with_a_clear_message(directory: Path, tmp_path: Path) -> None:
    up = Foreground(directory, tmp_path / "output")
    up.wait_until_ready()
    [etcd] = [pid for pid, command in commands_about(directory).items() if "etcd --name" in command]
    os.kill(etcd, signal.SIGKILL)
    assert up.process.wait(timeout=60) == 1
    assert "\nvmherd: etcd ended:" in up.output.read_text()
    assert "Traceback" not in up.output.read_text()
    assert processes_about(directory) == []


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_without_the_programs_the_error_says_how_to_get_them(directory: Path, options: list[str]) -> None:
    nothing = {"VMHERD_CACHE": str(directory.parent / "cache"), "KUBEBUILDER_ASSETS": "", "PATH": "/nowhere"}
    done = run("up", "--dir", str(directory), *options, **nothing)
    assert done.returncode == 1
    assert "Three ways to get them" in done.stderr.splitlines()[-1]
    assert not (directory / "state.json").exists()


def test_the_simulator_gets_the_time_scale_and_the_detail_of_the_options(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[SimulationSettings] = []

    async def simulate(_: Path, *, defaults: SimulationSettings, **__: bool) -> None:
        given.append(defaults)

    def run_sandbox(home: Home, *, simulate: Simulate, **_: object) -> None:
        asyncio.run(simulate(home.kubeconfig))

    monkeypatch.setattr(simulator, "run", simulate)
    monkeypatch.setattr(logs, "configure", lambda *_, **__: None)
    monkeypatch.setattr(commands, "run_sandbox", run_sandbox)
    commands.up.main(["--dir", str(directory), "--time-scale=0.05", "--detail=full"], standalone_mode=False)
    assert given == [SimulationSettings(time_scale=0.05, detail="full")]


@pytest.mark.parametrize(
    "options", [["--no-simulator"], ["--time-scale=0.25", "--detail=full"], ["--time-scale=0.0", "--detail=short"]]
)
def test_detach_passes_the_options_on_to_the_process_in_the_background(
    directory: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[SimulationSettings | None] = []
    monkeypatch.setattr(commands, "sandbox_up", lambda *_, settings, **__: given.append(settings))
    commands.up.main(["--dir", str(directory), *options], standalone_mode=False)
    assert commands._flags_for(given[0]) == options


@pytest.mark.parametrize("option", ["--time-scale=2", "--time-scale=nan", "--detail=some"])
def test_a_wrong_option_is_named(directory: Path, option: str) -> None:
    done = run("up", "--dir", str(directory), option)
    assert done.returncode == 2
    assert option.partition("=")[0] in done.stderr


def test_down_of_a_directory_without_a_sandbox_is_one_clear_line(tmp_path: Path) -> None:
    done = run("down", "--dir", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"vmherd: there is no sandbox in {tmp_path}\n")


def definition() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "manifests" / "crds" / "pool.kubevirt.io_virtualmachinepools.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_the_copy_in_the_own_group_has_its_own_name_and_short_names():
    copy = under_own_group(definition(), "pool.vmherd.dev", ("hvmpool",))
    assert copy["metadata"] == {"name": "virtualmachinepools.pool.vmherd.dev"}
    assert (copy["spec"]["group"], copy["spec"]["names"]["shortNames"]) == ("pool.vmherd.dev", ["hvmpool"])
    assert copy["spec"]["versions"] == definition()["spec"]["versions"]


def test_a_takeover_keeps_only_the_status_fields_of_kubevirt():
    original = definition()
    known = POOLS.known_status
    assert known is not None
    changed = with_status(original, known)
    for version in changed["spec"]["versions"]:
        assert set(version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]) == known
    assert original == definition()
