"""`vmherd demo` as a command, with and without a terminal."""

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.demo.experiments import SET_NAME
from sandbox.kubectl import kubectl_path
from tests.controlplane.waits import eventually
from tests.programs import finished, processes_about

DEMO = [sys.executable, "-m", "controller", "demo"]
ON_A_TERMINAL = "import os, sys; os.login_tty(int(sys.argv[1])); {}; os.execv(sys.argv[2], sys.argv[2:])"
WITHIN_S = 100.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3 * WITHIN_S)]
CTRL_C = b"\x03"

ALL_SET = "vmirs/testreplicaset +3 +3 +3 +3 "
ALL_WELL = "vmpool/vm-pool-web +4 +4 +4 +4 +Running"

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A demo on a terminal of the test. The demo keeps its temporary files in a directory of the test."""

    def __init__(self, directory: Path, *, before: str = "pass", kind: str = "xterm") -> None:
        self._ours, theirs = os.openpty()
        self.resize(50, 120)
        command = [sys.executable, "-c", ON_A_TERMINAL.format(before), str(theirs), *DEMO]
        # Under nohup, the demo would inherit an ignored SIGHUP.
        handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        environment = {**os.environ, "TMPDIR": str(directory), "TERM": kind}
        for size in ("COLUMNS", "LINES"):  # pytest-xdist sets them, and rich prefers them to the size of the terminal
            environment.pop(size, None)
        self.process = subprocess.Popen(command, pass_fds=[theirs], env=environment)
        signal.signal(signal.SIGHUP, handler)
        os.close(theirs)
        self.seen = ""

    def reads(self, *patterns: str) -> None:
        """Wait until the screen has shown these patterns, in this order. Fails the test after a timeout."""
        give_up = time.monotonic() + WITHIN_S
        for pattern in patterns:
            while (found := re.search(pattern, self.seen)) is None:
                if time.monotonic() > give_up or not self.read():
                    pytest.fail(f"no {pattern!r} on the terminal, but:\n{self.seen[-4000:]}")
            self.seen = self.seen[found.end() :]

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def resize(self, height: int, width: int) -> None:
        termios.tcsetwinsize(self._ours, (height, width))

    def end(self) -> int:
        while self.read():
            pass
        return self.process.wait(WITHIN_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def read(self, *, within_s: float = 1.0) -> bool:
        """Wait at most `within_s` seconds for output, and read it. Return False only at the end of the output."""
        if not select.select([self._ours], [], [], within_s)[0]:
            return True
        try:
            self.seen += ESCAPES.sub("", os.read(self._ours, 65536).decode(errors="replace"))
        except OSError:
            return False  # on Linux: no process has the other end open
        return True


@pytest.fixture
def terminal_without_keys(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, before="os.dup2(os.open(os.devnull, os.O_RDONLY), 0)")
    yield terminal
    terminal.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_without_a_terminal_the_error_says_at_once_what_to_do() -> None:
    done = subprocess.run(DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "vmherd: demo: the output is not a terminal: use `vmherd demo --once`\n"


def test_without_keys_the_error_says_at_once_what_to_do(terminal_without_keys: Terminal) -> None:
    assert terminal_without_keys.end() == 1
    assert terminal_without_keys.seen.strip() == "vmherd: demo: the input is not a terminal: use `vmherd demo --once`"


@pytest.fixture(scope="module")
def once(control_plane_binaries: object, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a successful `vmherd demo --once`. The command must leave no files behind."""
    directory = tmp_path_factory.mktemp("once")
    done = finished([*DEMO, "--once"], env={**os.environ, "TMPDIR": str(directory)}, within_s=2.5 * WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(directory.iterdir()) == []
    assert processes_about(directory) == []
    return done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r'^vmirs "testreplicaset" (successfully rolled out)$', ["successfully rolled out"] * 3),
        (r"^=== Step (\d+) of 10: ", [*"123456789", "10"]),
        (
            r"^=== Step \d+ of 10: ([a-z]+)",
            ["create", "scale", "create", "update", "break", "detach", "a", "undo", "a", "what"],
        ),
        (r"Deleted VM default/vm-pool-web-1: healing: it failed to start 3 times in a row, the limit is 3; ", None),
        (r"^\$ (kubectl get vmpool,vm)$", ["kubectl get vmpool,vm"] * 2),
        (r"^(virtualmachinepool\S*/vm-pool-web) +4 ", None),
        (r"^\$ (kubectl describe vmpool vm-pool-web)$", None),
        (r"^[`|]- (vm/vm-pool-web-4) +2 +Running +True ", None),
        (r"^\$ (kubectl vmherd tree vmpool/vm-pool-web vmirs/testreplicaset)$", None),
    ],
)
def test_once_shows_each_step_with_the_output_of_its_commands(once: str, pattern: str, found: list[str] | None) -> None:
    matches = re.findall(pattern, once, re.MULTILINE)
    assert matches == found if found else matches


@pytest.mark.cluster
def test_once_updates_a_pool_one_vm_at_a_time(once: str) -> None:
    [step] = re.findall(r"update the pool, one VM at a time ===(.*?)=== Step", once, re.DOTALL)
    updated = re.findall(r"(\d) out of 4 new VMs have been updated", step)
    assert updated == sorted(updated)
    assert 'vmpool "vm-pool-web" successfully rolled out\n' in step


@pytest.mark.cluster
def test_once_shows_that_a_failing_vm_is_replaced_under_its_name(once: str) -> None:
    [step] = re.findall(r"break a VM: .*?=== Step", once, re.DOTALL)
    assert "virtualmachine.kubevirt.io/vm-pool-web-1 condition met\n" in step


@pytest.mark.cluster
def test_once_stops_at_a_bad_image_and_the_plugin_says_why(once: str) -> None:
    [step] = re.findall(r"a bad image: .*?=== Step", once, re.DOTALL)
    assert re.search(r"^vmpool/vm-pool-web +\d+->\d+ +Updating 1/4 +3/4 ", step, re.MULTILINE)
    assert re.search(r"^ +cause +vm-pool-web-0: (ErrImagePull|ImagePullBackOff) ", step, re.MULTILINE)


@pytest.mark.cluster
def test_once_wakes_a_standby_in_the_place_of_a_claimed_vm(once: str) -> None:
    [step] = re.findall(r"a claim: .*?=== Step", once, re.DOTALL)
    assert re.search(r"^virtualmachine.kubevirt.io/vm-pool-web-0 claimed by job-1, ", step, re.MULTILINE)
    assert "virtualmachine.kubevirt.io/vm-pool-web-5 condition met\n" in step
    assert re.search(r"^\|- vm/vm-pool-web-0 .* claimed by job-1$", step, re.MULTILINE)
    assert re.search(r"^[`|]- vm/vm-pool-web-5 +\d +Running +True ", step, re.MULTILINE)


@pytest.mark.cluster
def test_once_ends_with_why_of_the_plugin(once: str) -> None:
    end = once.partition("what the plugin shows")[2]
    assert end.partition("$ kubectl vmherd why ")[2].count(" leader ") == 2


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_on_a_terminal_keys_make_experiments_and_q_ends_with_tree_and_why(terminal: Terminal, tmp_path: Path) -> None:
    terminal.reads(ALL_SET, ALL_WELL, "1 scale +scale the set", "export KUBECONFIG=")
    for key, *patterns in (
        (b"2", "2: give the pool a new template", "Updating", ALL_WELL, "vm-pool-web-3 +Running +True +2"),
        (b"3", "3: let the guest of vm-pool-web-1 hang", "vm-pool-web-1 +Running +False"),
        (b"5", "5: let the pool replace each VM", "healing", ALL_WELL),
        (b"6", "6: detach vm-pool-web-2", r"vm-pool-web-2 \(detached\) +Running +True"),
        (b"4", "4: give the pool a template with a bad image", "ImagePullBackOff"),
        (b"7", "7: return the pool to the template before", "vm-pool-web-0 +Running +True +2"),
        (b"8", "8: let the pool prepare one VM more", r"vm-pool-web-\d +Stopped +False"),
        (b"9", "9: take a VM out of the pool", r"vm-pool-web-6 +Stopped +False"),
        (b"w", "kubectl vmherd why vmpool/vm-pool-web vmirs/testreplicaset", "vmpool/vm-pool-web wants 4", "Press any"),
        (b"q", "1 scale +scale the set"),
        (b"0", "0: back to the start", ALL_WELL, "vm-pool-web-0 +Running +True +1"),
    ):
        terminal.press(key)
        terminal.reads(*patterns)
    [kubeconfig] = tmp_path.glob("vmherd-demo-*/kubeconfig")
    scale = [kubectl_path(), "--kubeconfig", str(kubeconfig), "scale", "vmirs", SET_NAME, "--replicas", "60"]
    subprocess.run(scale, check=True, stdout=subprocess.DEVNULL, timeout=WITHIN_S)
    terminal.reads("vmirs/testreplicaset +60 +60 +60 ", r"and \d+ more", "7 undo", "export KUBECONFIG=")
    terminal.resize(24, 80)
    terminal.reads("1 scale  2 update  3 break a VM  4 bad image", "q quit", "export KUBECONFIG=")
    terminal.press(b"q")
    terminal.reads(
        "kubectl vmherd tree vmpool", "vm/vm-pool-web-0 ", "kubectl vmherd why vmpool", "stopping everything"
    )
    assert terminal.end() == 0
    eventually(lambda: not processes_about(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_a_terminal_that_cannot_move_its_cursor_gets_keys_and_state_as_text(tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, kind="dumb")) as terminal:
        terminal.reads("vmirs/testreplicaset", "1 scale  2 update", "export KUBECONFIG=", "Press a key; any other key")
        terminal.press(b"1")
        terminal.reads("1: ", "export KUBECONFIG=", "Press a key; any other key")
        terminal.press(b"q")
        terminal.reads("stopping everything")
        assert terminal.end() == 0


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_pressing_ctrl_c_repeatedly_during_experiments_leaves_nothing_behind(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.reads(ALL_SET)
    terminal.press(b"1267")

    def ends() -> bool:
        terminal.press(CTRL_C)
        terminal.read(within_s=0.0)
        return terminal.process.poll() is not None

    eventually(ends)
    assert terminal.end() == 0
    eventually(lambda: not processes_about(tmp_path))
    assert list(tmp_path.iterdir()) == []
