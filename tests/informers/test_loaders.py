"""The loaders of kubernetes_asyncio come without its client where that can be had, and with it everywhere else.

Each in a process of its own: what a process has imported, it keeps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.informers.faultserver import write_kubeconfig

LOAD = """
import asyncio, json, sys
from informers.configuration import load_credentials
host = asyncio.run(load_credentials(sys.argv[1])).host
print(json.dumps([host, [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.")]]))
"""

A_VERSION_THAT_NEEDS_ITS_OWN_CODE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes_asyncio.%s" and not hasattr(sys.modules["kubernetes_asyncio"], "__version__"):
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
"""


def loaded(program: str, tmp_path: Path) -> list[str]:
    """The modules of the client that this program imports on its way to the credentials."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://herd:1")
    done = subprocess.run(
        [sys.executable, "-c", program, str(kubeconfig)], capture_output=True, text=True, timeout=60, check=True
    )
    host, modules = json.loads(done.stdout)
    assert host == "http://herd:1"
    return list(modules)


def test_credentials_are_loaded_without_the_generated_client(tmp_path: Path) -> None:
    assert sorted(loaded(LOAD, tmp_path)) == [
        "kubernetes_asyncio.client.configuration",
        "kubernetes_asyncio.client.exceptions",
    ]


@pytest.mark.parametrize("module", ["client", "client.configuration", "config"])
def test_where_a_version_does_not_stand_that_it_is_imported_as_a_whole(module: str, tmp_path: Path) -> None:
    modules = loaded(A_VERSION_THAT_NEEDS_ITS_OWN_CODE % module + LOAD, tmp_path)
    assert "kubernetes_asyncio.client.models" in modules


def test_where_it_is_there_already_it_is_taken_as_it_is(tmp_path: Path) -> None:
    assert "kubernetes_asyncio.client.models" in loaded("import kubernetes_asyncio\n" + LOAD, tmp_path)
