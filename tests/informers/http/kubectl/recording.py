"""Servers that record who asks: an API server with and without TLS, and a proxy. And the certificates for them."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography.hazmat.primitives import serialization

from tests.informers.faultserver import Handler, port_of

VERSION = b'{"major": "1", "minor": "37", "gitVersion": "v1.37.1"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(VERSION), VERSION)


class Seen(NamedTuple):
    """One request: what the server knows of the client."""

    scheme: str
    request: str
    auth: str | None
    cn: str | None
    sni: str | None
    impersonated: list[str]

    def __str__(self) -> str:
        return f"{self.scheme} {self.request} auth={self.auth} cn={self.cn} sni={self.sni} as={self.impersonated}"


class Pki:
    """A folder of certificates, and their texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority, other, clients = trustme.CA(), trustme.CA(), trustme.CA()
        middle = authority.create_child_ca()
        names = ("127.0.0.1", "::1", "localhost", "api.example.org")
        client, stranger = (clients.issue_cert("x.example.org", common_name=name) for name in ("jane", "joe"))
        self.tls = _tls(authority.issue_cert(*names), clients)
        self.tls_below_middle = _tls(middle.issue_cert(*names), clients)
        key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
        encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
        ca, certificate, private = (
            each.bytes() for each in (authority.cert_pem, client.cert_chain_pems[0], client.private_key_pem)
        )
        files = {
            "ca.pem": ca, "other.pem": other.cert_pem.bytes(), "middle.pem": middle.cert_pem.bytes(),
            "client.pem": certificate, "client.key": private,
            "other.key": stranger.private_key_pem.bytes(), "encrypted.key": encrypted,
        }  # fmt: skip
        for name, content in files.items():
            (folder / name).write_bytes(content)
        self.texts = {"$PKI": str(folder)}
        for name, content in (("CA", ca), ("CERT", certificate), ("KEY", private)):
            text = content.decode()
            self.texts |= {f"${name}64": base64.b64encode(content).decode(), f"${name}_PEM": text}
            # A PEM text in a JSON text in a JSON text.
            self.texts[f"${name}_TEXT"] = text.replace("\n", r"\\n")


def _tls(certificate: trustme.LeafCert, clients: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    clients.configure_trust(context)

    def remember(socket: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        _names[socket] = name

    context.sni_callback = remember
    return context


@asynccontextmanager
async def recording(pki: Pki, texts: str) -> AsyncIterator[tuple[dict[str, str], list[Seen]]]:
    """Start the servers whose addresses are in `texts`, and serve until the block ends.

    Yield the values of the addresses, and the list of all requests.
    """
    seen: list[Seen] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _read(reader, writer):
            seen.append(request)
            writer.write(OK)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _proxy(reader, writer, seen)

    async with AsyncExitStack() as stack:

        async def port(handle: Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
            return str(await stack.enter_async_context(port_of(handle, host, tls)))

        values = {}
        if any(name in texts for name in ("$HTTPS", "$HOST", "$PORT")):
            values["$PORT"] = await port(answer, tls=pki.tls)
            values["$HOST"] = f"127.0.0.1:{values['$PORT']}"
            values["$HTTPS"] = f"https://{values['$HOST']}"
        if "$HTTP" in texts.replace("$HTTPS", ""):
            values["$HTTP_PORT"] = await port(answer)
            values["$HTTP"] = f"http://127.0.0.1:{values['$HTTP_PORT']}"
        if "$PROXY" in texts:
            values["$PROXY_HOST"] = f"127.0.0.1:{await port(forward)}"
            values["$PROXY"] = f"http://{values['$PROXY_HOST']}"
        if "$PORT6" in texts:
            values["$PORT6"] = await port(answer, "::1", pki.tls)
        if "$MIDDLE" in texts:
            values["$MIDDLE"] = await port(answer, tls=pki.tls_below_middle)
        if "$SOCKS" in texts:
            values["$SOCKS"] = f"127.0.0.1:{await port(_socks)}"
        yield values, seen


_names: dict[Any, str | None] = {}
"""The name that the client asked for, by TLS connection."""


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in head[1:] if line)]
    tls = writer.get_extra_info("ssl_object")
    subject = ((tls.getpeercert() if tls else None) or {}).get("subject", ())
    return Seen(
        "https" if tls else "http",
        _without_timeout(head[0].removesuffix(" HTTP/1.1")),
        next((value.strip() for name, value in headers if name == "authorization"), None),
        next((value for part in subject for name, value in part if name == "commonName"), None),
        _names.get(tls),
        sorted(f"{name}: {value}" for name, value in headers if name.startswith("impersonate-")),
    )


def _without_timeout(request: str) -> str:
    """Remove the parameter that only kubectl sends."""
    return request.removesuffix("?timeout=32s")


async def _proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[Seen]) -> None:
    """Record a request to the proxy. Connect to the server if the request is a CONNECT, else answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    login = next((line.partition(": ")[2] for line in lines if line.lower().startswith("proxy-auth")), None)
    method, target, _ = lines[0].split(" ")
    seen.append(Seen("proxy", f"{method} {_without_timeout(target)}", login, None, None, []))
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        await _connect(reader, writer, host, int(port), b"HTTP/1.1 200 OK\r\n\r\n")
    else:
        writer.write(OK)
        await reader.read()


async def _socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak SOCKS5 without a login, and connect to an IPv4 address."""
    greeting = await reader.readexactly(2)
    await reader.readexactly(greeting[1])
    writer.write(b"\x05\x00")
    request = await reader.readexactly(10)
    address = ".".join(map(str, request[4:8]))
    await _connect(reader, writer, address, int.from_bytes(request[8:10]), b"\x05\x00\x00\x01" + bytes(6))


async def _connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, answer: bytes
) -> None:
    far_reader, far_writer = await asyncio.open_connection(host, port)
    writer.write(answer)
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
