"""The package `informers`: its public names, the modules that an import loads, its manual and its example."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import informers
from tests.programs import finished

ROOT = Path(__file__).resolve().parent.parent.parent
MANUAL = (ROOT / "docs" / "informers.md").read_text()
EXAMPLE = (ROOT / "docs" / "examples" / "greeter.py").read_text()
LONGEST_EXAMPLE = 80
HEAVY = ("aiohttp", "kubernetes_asyncio", "prometheus_client", "structlog")


@pytest.mark.parametrize("name", informers.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(informers, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Informer'"):
        import_module("informers").__getattr__("Informer")


def test_importing_the_package_loads_no_http_client():
    code = f"import informers, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert finished([sys.executable, "-c", code], cwd=ROOT).stdout.strip() == "[]"


def test_the_manual_names_every_public_name():
    prose = re.sub(r"^```.*?^```", "", MANUAL, flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert set(informers.__all__) - words == set()


def test_the_example_is_short_and_uses_public_names_only():
    assert len(EXAMPLE.splitlines()) <= LONGEST_EXAMPLE
    assert not re.search(r"\binformers\.\w", EXAMPLE)
    assert not re.search(r"^(import|from) (controller|sandbox)", EXAMPLE, re.MULTILINE)
    assert set(re.findall(r"\bk8s\.(\w+)", EXAMPLE)) - set(informers.__all__) == set()
