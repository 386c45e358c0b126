"""The proxy for an address, from the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go programs read them."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(address: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy for this address, or None. An address on this machine has no proxy.

    The parts of NO_PROXY are `*`, host names with their subdomains, IP addresses and networks such as `10.0.0.0/8`.
    """
    parts = urlsplit(address)
    host, names = parts.hostname or "", (f"{parts.scheme.upper()}_PROXY", f"{parts.scheme}_proxy")
    proxy = next((environment[name] for name in names if environment.get(name)), "")
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if (
        not proxy
        or host == "localhost"
        or any(_covers(each.strip(), host, parts.port) for each in exceptions.split(","))
    ):
        return None
    if _is_in(host, "127.0.0.0/8") or _is_in(host, "::1/128"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(exception: str, host: str, port: int | None) -> bool:
    name, colon, its_port = exception.rpartition(":")
    if colon and its_port.isdigit() and ":" not in name:
        return its_port == str(port or 443) and _covers(name, host, port)
    suffix = exception.lower().removeprefix("*").removeprefix(".")
    if exception == "*" or _is_in(host, exception):
        return True
    return bool(suffix) and (host.endswith(f".{suffix}") or (host == suffix and not exception.startswith((".", "*."))))


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
