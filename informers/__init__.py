"""A client, a cache and a work queue for Kubernetes controllers on asyncio. The manual is docs/informers.md.

The names in `__all__` are the public interface. A name that needs asyncio, aiohttp or kubernetes_asyncio is imported at
its first use, so `import informers` loads none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from informers.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    GateClosed,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    ServerTimeout,
    StatusError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from informers.instruments import NO_INSTRUMENTS, Instruments
from informers.meta import (
    KubeObject,
    ObjectKey,
    ObjectMeta,
    OwnerReference,
    annotations_of,
    controller_of,
    labels_of,
    version_number,
)
from informers.objects import PatchType
from informers.ratelimit import Backoff, ItemBackoff, MaxOf, RateLimiter, TokenBucket, default_rate_limiter
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Added, Change, Indexes, Removed, Store, StoreView, Updated

if TYPE_CHECKING:
    from informers.http.client import ApiClient, open_client
    from informers.http.configuration import Credentials, load_credentials
    from informers.http.kubeconfig import ConfigurationError
    from informers.informer import SharedInformer
    from informers.workqueue import QueueShutDown, WorkQueue

__all__ = [
    "ALL_NAMESPACES",
    "NO_INSTRUMENTS",
    "Added",
    "AlreadyExists",
    "ApiClient",
    "ApiError",
    "Backoff",
    "Change",
    "ConfigurationError",
    "Conflict",
    "Credentials",
    "Forbidden",
    "GateClosed",
    "Gone",
    "Indexes",
    "Instruments",
    "Invalid",
    "ItemBackoff",
    "KubeObject",
    "MaxOf",
    "NotFound",
    "ObjectKey",
    "ObjectMeta",
    "OwnerReference",
    "PatchType",
    "QueueShutDown",
    "RateLimiter",
    "Removed",
    "Resource",
    "ServerError",
    "ServerTimeout",
    "SharedInformer",
    "StatusError",
    "Store",
    "StoreView",
    "TokenBucket",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Updated",
    "WorkQueue",
    "annotations_of",
    "controller_of",
    "default_rate_limiter",
    "labels_of",
    "load_credentials",
    "open_client",
    "version_number",
]

_HEAVY: Final = {
    "ApiClient": "http.client",
    "open_client": "http.client",
    "ConfigurationError": "http.kubeconfig",
    "Credentials": "http.configuration",
    "load_credentials": "http.configuration",
    "SharedInformer": "informer",
    "QueueShutDown": "workqueue",
    "WorkQueue": "workqueue",
}
"""The public names that are imported late, with their modules: aiohttp needs about 0.3 seconds."""


def __getattr__(name: str) -> object:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HEAVY[name]}"), name)
    globals()[name] = value
    return value
