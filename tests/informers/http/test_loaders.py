"""`informers.http.configuration` imports kubernetes_asyncio without its generated client. If this import fails,
`informers.http.configuration` imports the whole package.

Each test starts a new process, because a process keeps its imported modules.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.informers.faultserver import write_kubeconfig

LOAD = """
import asyncio, json, sys
from informers.http.configuration import load_credentials
host = asyncio.run(load_credentials(sys.argv[1])).host
print(json.dumps([host, [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.")]]))
"""

REQUIRE_PACKAGE_CODE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes_asyncio.%s" and not hasattr(sys.modules["kubernetes_asyncio"], "__version__"):
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
"""


def client_modules(program: str, tmp_path: Path) -> list[str]:
    """Run a program that loads credentials. Return the modules of the generated client that it imports."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://server:1")
    done = subprocess.run(
        [sys.executable, "-c", program, str(kubeconfig)], capture_output=True, text=True, timeout=60, check=True
    )
    host, modules = json.loads(done.stdout)
    assert host == "http://server:1"
    return list(modules)


def test_credentials_are_loaded_without_the_generated_client(tmp_path: Path) -> None:
    assert sorted(client_modules(LOAD, tmp_path)) == [
        "kubernetes_asyncio.client.configuration",
        "kubernetes_asyncio.client.exceptions",
    ]


@pytest.mark.parametrize("module", ["client.configuration", "config"])
def test_a_version_that_needs_its_package_code_is_imported_completely(module: str, tmp_path: Path) -> None:
    modules = client_modules(REQUIRE_PACKAGE_CODE % module + LOAD, tmp_path)
    assert "kubernetes_asyncio.client.models" in modules


def test_an_already_imported_package_is_used(tmp_path: Path) -> None:
    assert "kubernetes_asyncio.client.models" in client_modules("import kubernetes_asyncio\n" + LOAD, tmp_path)
