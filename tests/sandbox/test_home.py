"""The directory of a sandbox, without a control plane in it."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.running import Home, HomeError, State


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "sandbox")
    home.prepare()
    return home


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_directory_with_other_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine").write_text("precious")
    with pytest.raises(HomeError, match="has other files than a sandbox's"):
        Home(tmp_path).prepare()
    assert [path.name for path in tmp_path.rglob("*")] == ["logs", "mine"]


def test_the_directory_of_an_earlier_sandbox_can_be_used_again(home: Home) -> None:
    (home.logs / "etcd.log").write_text("old")
    home.prepare()
    with home.occupied():
        home.clear()
    assert not list(home.logs.iterdir())


def test_a_directory_that_cannot_be_created_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match=r"cannot be used: Not a directory$"):
        Home(tmp_path / "file" / "sandbox").prepare()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}'])
def test_a_state_that_cannot_be_read_counts_as_none(home: Home, content: str) -> None:
    (home.directory / "state.json").write_text(content)
    assert home.state() is None
    assert home.evict() is None


def test_another_process_that_has_the_pid_of_an_ended_sandbox_is_not_stopped(
    home: Home, sleeper: subprocess.Popen[bytes]
) -> None:
    home.write_state(State(pid=sleeper.pid))
    assert home.evict() is None
    assert sleeper.poll() is None


def test_the_process_that_runs_the_sandbox_is_stopped(home: Home, sleeper: subprocess.Popen[bytes]) -> None:
    state = State(pid=sleeper.pid)
    with home.occupied():
        home.write_state(state)
        assert home.evict() == state
    assert sleeper.wait() == -signal.SIGTERM


def test_the_files_of_a_killed_sandbox_are_removed_except_its_logs(home: Home) -> None:
    home.write_state(State(pid=4711))
    home.kubeconfig.write_text("old")
    (home.directory / "pki").mkdir()
    (home.directory / "pki" / "admin.key").write_text("old")
    (home.logs / "etcd.log").write_text("why it died")
    assert home.evict() is None
    assert {path.name for path in home.directory.iterdir()} == {"sandbox.lock", "logs"}
    assert (home.logs / "etcd.log").read_text() == "why it died"


def test_a_link_to_somewhere_else_is_removed_and_not_followed(home: Home, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("precious")
    (home.directory / "etcd").symlink_to(tmp_path / "elsewhere")
    home.tidy()
    assert not (home.directory / "etcd").is_symlink()
    assert (tmp_path / "elsewhere" / "mine").exists()
