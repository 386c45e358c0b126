"""The sources of the control plane's programs. The directories, the release server and the Go toolchain are fakes."""

import hashlib
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest

from sandbox import gobuild, releases
from sandbox.binaries import PROGRAMS, BinariesUnavailable, find_binaries
from sandbox.provide import provide
from sandbox.releases import ETCD, KUBERNETES, Releases
from tests.controlplane.waits import eventually

NOWHERE = Releases(kubernetes="http://127.0.0.1:1/kubernetes", etcd="http://127.0.0.1:1/etcd")
"""A port without a listener: the connection is refused at once."""

MACHINE = releases.architecture()

GO = """#!/bin/sh
echo "$@" >> "{record}"
case "$1" in
    version) echo "go version {version} linux/amd64" ;;
    list) echo "go: downloading example.com/one v1.0.0" >&2; echo example.com/one; echo example.com/two ;;
    build)
        while [ "$1" != -o ]; do shift; done
        printf 'half of ' > "$2"
        echo example.com/one >&2
        {during}
        printf 'built %s' "$(basename "$2")" > "$2"
        ;;
esac
"""


class Machine:
    """A machine that has only the programs and files of the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.assets = root / "assets"
        self.store = root / "cache" / "control-plane" / f"v{KUBERNETES}"
        self.go_calls = root / "go-calls"
        self.environment = {"VMHERD_CACHE": str(root / "cache"), "PATH": str(root / "bin")}
        self.releases = NOWHERE
        (root / "bin").mkdir()

    def put(self, directory: Path, *names: str, content: str = "there") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name in names:
            (directory / name).write_text(content)
            (directory / name).chmod(0o755)

    def use_assets(self, *names: str) -> None:
        self.put(self.assets, *names)
        self.environment["KUBEBUILDER_ASSETS"] = str(self.assets)

    def install_go(self, *, version: str = "go1.26.8", during: str = "") -> None:
        script = GO.format(record=self.go_calls, version=version, during=during)
        self.put(self.root / "bin", "go", content=script)
        self.environment["PATH"] = f"{self.root / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"

    def find(self) -> dict[str, Path]:
        with mock.patch.dict(os.environ, self.environment, clear=True):
            return dict(find_binaries(releases=self.releases))

    def contents(self) -> dict[str, str]:
        return {name: path.read_text() for name, path in self.find().items()}

    def stored(self) -> set[str]:
        return {path.name for path in self.store.iterdir() if path.suffix != ".lock"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def published(machine: Machine) -> Iterator[Path]:
    """A directory with all files of both releases. It takes the place of the internet."""
    root = machine.root / "published"
    programs = root / "kubernetes" / "bin" / "linux" / MACHINE
    for name in PROGRAMS[1:]:
        machine.put(programs, name, content=f"released {name}")
        (programs / f"{name}.sha256").write_text(hashlib.sha256(f"released {name}".encode()).hexdigest())
    publish_etcd(root / "etcd", b"released etcd")
    handler = partial(QuietHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        machine.releases = Releases(kubernetes=f"{url}/kubernetes", etcd=f"{url}/etcd")
        yield root
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def publish_etcd(directory: Path, content: bytes) -> None:
    name = f"etcd-v{ETCD}-linux-{MACHINE}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo(f"{name}/etcd")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    directory.mkdir(parents=True)
    (directory / f"{name}.tar.gz").write_bytes(packed.getvalue())
    checksum = hashlib.sha256(packed.getvalue()).hexdigest()
    (directory / "SHA256SUMS").write_text(f"{'0' * 64}  another.tar.gz\n{checksum}  {name}.tar.gz\n")


def test_the_directory_that_the_user_names_comes_before_the_cache(machine: Machine) -> None:
    machine.use_assets(*PROGRAMS)
    machine.put(machine.store, *PROGRAMS)
    assert machine.find() == {name: machine.assets / name for name in PROGRAMS}
    (machine.assets / "etcd").chmod(0o644)
    assert machine.find()["etcd"] == machine.store / "etcd", "the file is not executable"


ALL = ", ".join(PROGRAMS)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ("etcd", "kube-apiserver"),
            "etcd, kube-apiserver from {assets}; kube-controller-manager from the cache ({store})",
        ),
        ((), f"{ALL} from the cache ({{store}}); {{assets}} has none of these programs"),
    ],
)
def test_programs_that_the_users_directory_lacks_come_from_the_cache(
    machine: Machine, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], told: str
) -> None:
    machine.use_assets(*names)
    machine.put(machine.store, *PROGRAMS)
    assert machine.find()["kube-controller-manager"] == machine.store / "kube-controller-manager"
    line = told.format(assets=f"KUBEBUILDER_ASSETS ({machine.assets})", store=machine.store)
    assert capsys.readouterr().err == f"control plane: {line}\n"


def test_the_environment_sets_the_directory_of_the_cache(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.environment = {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    machine.put(tmp_path / "xdg" / "vmherd" / "control-plane" / f"v{KUBERNETES}", *PROGRAMS)
    assert machine.find()["etcd"].is_relative_to(tmp_path / "xdg" / "vmherd")


@pytest.mark.usefixtures("published")
def test_missing_programs_are_downloaded_and_kept(machine: Machine) -> None:
    machine.install_go()
    assert machine.contents() == {name: f"released {name}" for name in PROGRAMS}
    machine.releases = NOWHERE
    assert machine.find() == {name: machine.store / name for name in PROGRAMS}
    assert not machine.go_calls.exists()
    assert machine.stored() == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_download_with_another_checksum_is_not_used(machine: Machine, published: Path, name: str) -> None:
    if name == "etcd":
        sums = published / "etcd" / "SHA256SUMS"
        sums.write_text(re.sub(r"[0-9a-f]{64}", "f" * 64, sums.read_text()))
    else:
        (published / "kubernetes" / "bin" / "linux" / MACHINE / name).write_text("tampered with")
    with pytest.raises(BinariesUnavailable, match=r"has the checksum .*, but its release lists"):
        machine.find()
    assert name not in machine.stored()


def test_an_archive_without_the_program_leads_to_a_build(machine: Machine, published: Path) -> None:
    machine.install_go()
    archive = published / "etcd" / f"etcd-v{ETCD}-linux-{MACHINE}.tar.gz"
    archive.write_bytes(b"no archive")
    checksum = hashlib.sha256(b"no archive").hexdigest()
    (published / "etcd" / "SHA256SUMS").write_text(f"{checksum}  {archive.name}\n")
    assert machine.contents()["etcd"] == "built etcd"


def test_programs_that_cannot_be_downloaded_are_built(machine: Machine, published: Path) -> None:
    machine.install_go()
    (published / "kubernetes" / "bin" / "linux" / MACHINE / "kube-controller-manager").unlink()
    assert machine.contents() == {
        "etcd": "released etcd",
        "kube-apiserver": "released kube-apiserver",
        "kube-controller-manager": "built kube-controller-manager",
    }


def test_a_build_is_stamped_with_the_version_of_kubernetes(machine: Machine) -> None:
    machine.install_go()
    machine.find()
    builds = [call for call in machine.go_calls.read_text().splitlines() if call.startswith("build")]
    assert len(builds) == len(PROGRAMS)
    assert all(f"k8s.io/component-base/version.gitVersion=v{KUBERNETES}" in call for call in builds)


@pytest.mark.parametrize("version", ["go1.25.9", "go1.27.0"])
def test_another_release_of_go_is_not_used(machine: Machine, version: str) -> None:
    machine.install_go(version=version)
    with pytest.raises(BinariesUnavailable, match=rf"{re.escape(version)}, but Kubernetes needs Go 1\.26"):
        machine.find()


def test_on_an_empty_machine_the_error_names_three_remedies(machine: Machine) -> None:
    with pytest.raises(BinariesUnavailable) as told:
        machine.find()
    line = str(told.value)
    assert "\n" not in line
    for way in ("Connection refused", "Go is not installed", "KUBEBUILDER_ASSETS", "dl.k8s.io", "install Go 1.26"):
        assert way in line


def test_a_failed_build_leaves_no_program_and_shows_the_output_of_go(machine: Machine) -> None:
    machine.install_go(during="echo 'internal compiler error: oh no' >&2; exit 1")
    with pytest.raises(BinariesUnavailable, match="go build failed: internal compiler error: oh no"):
        machine.find()
    assert machine.stored() == set()


def test_a_build_that_is_killed_leaves_neither_a_program_nor_a_process(machine: Machine) -> None:
    waiting = machine.root / "waiting"
    machine.install_go(during=f"echo $$ > {waiting}.new; mv {waiting}.new {waiting}; exec sleep 600")
    code = "from sandbox.binaries import find_binaries; from tests.sandbox.test_binaries import NOWHERE\n"
    victim = subprocess.Popen(
        [sys.executable, "-c", f"{code}find_binaries(releases=NOWHERE)"],
        env={**os.environ, **machine.environment, "KUBEBUILDER_ASSETS": ""},
        stderr=subprocess.DEVNULL,
    )
    eventually(waiting.exists)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    eventually(lambda: not Path(f"/proc/{waiting.read_text().strip()}").exists())
    assert machine.stored().isdisjoint(PROGRAMS)

    machine.install_go()
    assert machine.contents() == {name: f"built {name}" for name in PROGRAMS}
    assert machine.stored() == set(PROGRAMS)


def test_the_versions_are_those_of_the_module_that_is_built() -> None:
    pins = (gobuild.MODULE / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{KUBERNETES} " in pins
    assert f"go.etcd.io/etcd/server/v3 v{ETCD} " in pins
    assert f"\ngo {gobuild.GO_NAME}.0\n" in pins
    staging = re.findall(r"^\t(k8s\.io/\S+) => \1 v0\.(\S+)$", pins, re.MULTILINE)
    assert staging
    assert {f"1.{version}" for _, version in staging} == {KUBERNETES}


# Several processes share one cache of programs


PROCESSES = 4
MAKER = """
import sys, time
from pathlib import Path
from sandbox.provide import provide

def make(path):
    with open(sys.argv[2], "a") as log:
        log.write("made\\n")
    path.write_text("#!/bin/sh\\n")
    time.sleep(0.5)
    path.write_text("#!/bin/sh\\necho complete\\n")

print(provide(Path(sys.argv[1]), make))
"""


def told(code: str, *arguments: Path, **environment: str) -> tuple[set[str], str]:
    """The different outputs of several processes that run this code at once, and all their errors. No process fails."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    ended = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES, ended
    return {output.strip() for output, _ in ended}, "".join(errors for _, errors in ended)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix != ".lock"}


def test_of_several_processes_one_makes_the_program_and_all_get_it(tmp_path: Path) -> None:
    tool, log = tmp_path / "tools" / "tool", tmp_path / "log"
    outputs, errors = told(MAKER, tool, log)
    assert outputs == {str(tool)}
    assert "waiting for another process" in errors
    assert log.read_text() == "made\n"
    assert subprocess.run([tool], capture_output=True, text=True, check=True).stdout == "complete\n"
    assert names_in(tool.parent) == {"tool"}


def test_a_maker_that_fails_leaves_nothing_and_the_next_one_is_not_disturbed(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("a half")
        raise OSError("interrupted")

    tool = tmp_path / "tool"
    with pytest.raises(OSError, match="interrupted"):
        provide(tool, fail)
    assert names_in(tmp_path) == set()
    left_behind = tmp_path / ".incomplete-tool"  # of a process that was killed
    left_behind.mkdir()
    (left_behind / "tool").mkdir()
    provide(tool, lambda path: path.touch())
    assert names_in(tmp_path) == {"tool"}


def test_a_folder_without_its_program_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    (folder / "lib").mkdir(parents=True)

    def make(path: Path) -> None:
        path.mkdir()
        (path / "python").touch(0o755)

    assert provide(folder, make, program="python") == folder / "python"
    assert names_in(folder) == {"python"}
