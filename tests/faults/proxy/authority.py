"""The certificate authorities of the fault proxies."""

import functools
import ssl

import trustme
from msgspec import Struct


class Authority(Struct, frozen=True):
    """A certificate authority, and a TLS context with a certificate that it issued for 127.0.0.1."""

    pem: bytes
    context: ssl.SSLContext


def new_authority() -> Authority:
    ca = trustme.CA(organization_name="vmherd tests")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    return Authority(ca.cert_pem.bytes(), context)


shared_authority = functools.cache(new_authority)
"""The certificate authority of all proxies of this process. The proxies share it, because a new one takes long."""

other_authority = functools.cache(new_authority)
"""By default, `FaultProxy.change_authority` changes to this authority."""
