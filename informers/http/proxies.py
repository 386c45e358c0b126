"""The proxy for an address, from the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go programs read them."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

PORTS: Final = {"http": "80", "https": "443"}
WITH_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^]]+)\]|(?P<name>[^:]+)):(?P<port>\d*)")


def proxy_for(address: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy for this address, or None. An address on this machine has no proxy.

    The parts of NO_PROXY are `*`, host names with their subdomains, IP addresses and networks such as `10.0.0.0/8`. A
    name and an IP address can have a port.
    """
    parts = urlsplit(address)
    host, names = parts.hostname or "", (f"{parts.scheme.upper()}_PROXY", f"{parts.scheme}_proxy")
    proxy = next((environment[name] for name in names if environment.get(name)), "")
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    own, port = _ip(host), str(parts.port or "") or PORTS.get(parts.scheme, "")
    if not proxy or host == "localhost" or (own is not None and own.is_loopback):
        return None
    if any(_covers(each.strip().lower(), host, port) for each in exceptions.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(exception: str, host: str, port: str) -> bool:
    own = _ip(host)
    if exception == "*":
        return True
    if "/" in exception:
        return own is not None and _is_in(own, exception)
    found = WITH_PORT.fullmatch(exception)
    name, its_port = (found["ipv6"] or found["name"], found["port"]) if found else (exception, "")
    if its_port not in ("", port):
        return False
    if own is not None or _ip(name) is not None:
        return own == _ip(name)  # no name covers an IP address
    domain = name.removeprefix("*") if name.startswith("*.") else name
    return bool(domain) and (f".{host}".endswith(f".{domain}") if domain[0] != "." else host.endswith(domain))


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_in(address: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False
