"""This module imports the part of kubernetes_asyncio that loads kubeconfigs and service accounts.

A normal import of kubernetes_asyncio also imports its generated client: 830 modules and 34 MB of classes. The project
does not use the generated client. The `__init__` modules of `kubernetes_asyncio` and `kubernetes_asyncio.client` only
import the generated client. So this module does not run them. If a later version of kubernetes_asyncio cannot be
imported in this way, this module imports the whole package.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

PACKAGE: Final = "kubernetes_asyncio"
CLIENT: Final = f"{PACKAGE}.client"


def import_loaders() -> tuple[ModuleType, ModuleType]:
    """Return the modules `kubernetes_asyncio.config` and `kubernetes_asyncio.client`.

    The client module may be incomplete, but has the class `Configuration`. The loaders store their results in an
    instance of this class. Raise ImportError if kubernetes_asyncio is not installed.
    """
    if PACKAGE not in sys.modules:
        try:
            _prepare_packages()
            return import_module(f"{PACKAGE}.config"), sys.modules[CLIENT]
        except (ImportError, AttributeError):
            for name in list(_imported()):
                del sys.modules[name]
    return import_module(f"{PACKAGE}.config"), import_module(CLIENT)


def _prepare_packages() -> None:
    """Register the packages in `PACKAGE` and `CLIENT` without running their `__init__`. Define the names that the
    loaders read from `CLIENT`.

    After this call, the modules inside both packages can be imported. Raise ImportError if a package is not installed.
    """
    for name in (PACKAGE, CLIENT):
        spec = find_spec(name)
        if spec is None:
            raise ImportError(f"no {name}")
        sys.modules[name] = module_from_spec(spec)
    client = sys.modules[CLIENT]
    vars(sys.modules[PACKAGE])["client"] = client
    configuration = import_module(f"{CLIENT}.configuration").Configuration
    # The loaders use ApiClient only in functions that the project does not call.
    vars(client).update(Configuration=configuration, ApiClient=object)


def _imported() -> Iterator[str]:
    return (name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}."))
