"""Sockets that are closed only by a call of `close`, and not by the garbage collector.

This works around a bug of uvloop (MagicStack/uvloop, 653 and 738). When Python collects a socket object, it closes the
socket's file descriptor. uvloop takes over the descriptor and closes it itself, but in one case does not tell the
socket object: when the server resets a connection that is just being made. A server that crashes does that to all its
new connections.

When the socket object is collected later, the number of the descriptor may belong to another connection, and that
connection is closed. Then every new connection with that number fails until the process ends.
"""

from __future__ import annotations

import socket
from typing import Any


class OwnedSocket(socket.socket):
    """A socket whose descriptor stays open when the socket object is collected. Only `close` closes it."""

    def __del__(self) -> None:
        # Replaces the finalizer of `socket.socket`, which would close the descriptor.
        self.detach()


def open_socket(address: tuple[int, int, int, str, Any]) -> OwnedSocket:
    """Return an unconnected socket for an address in the format of `getaddrinfo`."""
    family, kind, protocol, _, _ = address
    return OwnedSocket(family, kind, protocol)
