"""kubernetes_asyncio's loaders of kubeconfigs and service accounts, without the client that it generates.

The package imports all of that client, 830 modules and 34 MB of classes that nobody here uses. Its two outer packages
do nothing else, so their own code is not run. Where a later version does not stand that, the whole is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

PACKAGE: Final = "kubernetes_asyncio"
CLIENT: Final = f"{PACKAGE}.client"


def import_loaders() -> tuple[ModuleType, ModuleType]:
    """`kubernetes_asyncio.config`, and a `kubernetes_asyncio.client` that has the Configuration which that fills in."""
    if PACKAGE not in sys.modules:
        try:
            _enter()
            return import_module(f"{PACKAGE}.config"), sys.modules[CLIENT]
        except (ImportError, AttributeError):
            for name in list(_imported()):
                del sys.modules[name]
    return import_module(f"{PACKAGE}.config"), import_module(CLIENT)


def _enter() -> None:
    """Make the modules in both packages importable, and put there what the loaders take from the client."""
    for name in (PACKAGE, CLIENT):
        spec = find_spec(name)
        if spec is None:
            raise ImportError(f"no {name}")
        sys.modules[name] = module_from_spec(spec)
    client = sys.modules[CLIENT]
    vars(sys.modules[PACKAGE])["client"] = client
    configuration = import_module(f"{CLIENT}.configuration").Configuration
    # The loaders name the client where one is to be returned, and never make one for us.
    vars(client).update(Configuration=configuration, ApiClient=object)


def _imported() -> Iterator[str]:
    return (name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}."))
