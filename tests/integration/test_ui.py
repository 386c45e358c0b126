"""`kubectl vmherd ui` on a real control plane, in a real browser."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser import Browser, running_browser
from tests.controlplane.documents import BEHAVIOR, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually, reacts

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
POOLS = "virtualmachinepools.pool.kubevirt.io"
TILES = "[...document.querySelectorAll('.tile')].map(each => each.dataset.name + ' ' + each.className).sort()"
WATCHING = """import sys
from plugin import __main__
from plugin.ui import server

server.SLOWEST_S = 3600
sys.exit(__main__.main())"""
"""The command, but only a watch brings a change to the page."""
TEXT = "document.querySelector('main')?.innerText ?? ''"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    (tmp_path / "browser").mkdir()
    with running_browser(tmp_path / "browser") as browser:
        yield browser


@contextmanager
def page(pools: PoolNamespace) -> Iterator[str]:
    """The address of the page. At the end, Ctrl-C ends the command at once."""
    flags = [f"--kubeconfig={pools.plane.kubeconfig}", "-n", pools.namespace]
    command = [sys.executable, "-c", WATCHING, "ui", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.strip()) == (130, "")


def test_the_browser_shows_each_change_without_a_reload(pools: PoolNamespace, browser: Browser) -> None:
    pools.make(2)
    with page(pools) as address:
        browser.open(address)
        eventually(lambda: "2/2" in browser.ask(TEXT), what="the pool is ready")
        browser.ask("document.querySelector('td a').click()")
        both = ["pool-0 tile good", "pool-1 tile good"]
        eventually(lambda: browser.ask(TILES) == both, what="two tiles")
        browser.ask("window.stays = true")
        pools.kubectl("scale", f"{POOLS}/pool", "--replicas=3")
        reacts(lambda: len(browser.ask(TILES)) == 3, what="a watch brings the third tile")
        eventually(lambda: browser.ask(TILES) == [*both, "pool-2 tile good"], what="the third VM is ready")
        pools.change_template(vm_template(vmi_annotations={BEHAVIOR: "image-error"}, memory="65M"))
        reacts(lambda: any("bad" in each for each in browser.ask(TILES)), what="a VM has a problem")
        pools.kubectl("delete", f"{POOLS}/pool")
        reacts(lambda: "NotFound" in browser.ask(TEXT), what="the page says that the pool is gone")
        pools.make(1)
        eventually(lambda: len(browser.ask(TILES)) == 1, what="the page recovers")
        assert browser.ask("window.stays") is True


def test_the_script_adds_a_filter_ages_and_buttons(pools: PoolNamespace, browser: Browser) -> None:
    pools.make(2)
    with page(pools) as address:
        browser.open(address)
        eventually(lambda: "2/2" in browser.ask(TEXT), what="the pool is ready")
        eventually(lambda: browser.ask("document.querySelector('input') !== null"), what="the script has run")
        for text, hidden in (("no such name", True), ("pool", False)):
            browser.ask(f"Object.assign(document.querySelector('input'), {{value: '{text}'}}).oninput()")
            assert browser.ask("document.querySelector('tbody tr').hidden") is hidden
        browser.ask("document.querySelectorAll('th')[1].click()")
        assert "as of" in browser.ask("document.querySelector('.seen').innerText")
        browser.ask("document.querySelector('td a').click()")
        eventually(lambda: len(browser.ask(TILES)) == 2, what="two tiles")
        titles = browser.ask("[...document.querySelectorAll('.tile button')].map(each => each.title)")
        assert titles == [f"copy: virtctl console pool-{number} -n {pools.namespace}" for number in (0, 1)]
        assert browser.ask("document.querySelector('.tile time').innerText").endswith("ago")
