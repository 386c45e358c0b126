"""A cluster for each test, and a shell whose commands use it."""

import pytest

from tests.plugin.cluster import Cluster, Shell, use


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    use(cluster, monkeypatch)
    return cluster


@pytest.fixture
def shell(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(cluster, capsys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes stdout a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("plugin.printing.is_terminal", lambda: True)
