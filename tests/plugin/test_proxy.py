"""HTTPS_PROXY and NO_PROXY count as for kubectl."""

import pytest

from plugin.proxy import proxy_for

PROXY = "http://proxy:3128"
API = "https://api.example.org:6443"


@pytest.mark.parametrize(
    ("address", "exceptions", "is_proxied"),
    [
        (API, "", True),
        (API, "*", False),
        (API, "example.org", False),
        (API, ".example.org", False),
        (API, "*.example.org", False),
        (API, "ample.org", True),
        (API, "api.example.org:6443, other.org", False),
        (API, "api.example.org:443", True),
        ("https://example.org", ".example.org", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.4", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.org", "", False),
    ],
)
def test_an_address_has_the_proxy_of_its_scheme_unless_no_proxy_names_it(
    address: str, exceptions: str, is_proxied: bool
):
    found = proxy_for(address, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions})
    assert found == (PROXY if is_proxied else None)


def test_lower_case_and_a_proxy_without_a_scheme():
    assert proxy_for(API, {"https_proxy": "proxy:3128"}) == PROXY
