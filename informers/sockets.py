"""Sockets that only their owner closes.

A socket of Python closes its descriptor when it is collected. Where uvloop has taken the descriptor over and closed it,
in one case it forgets to tell the socket: when the server resets a connection that is just being made, as one that
crashes does with all of them. The number belongs to another connection by the time the socket is collected; that one
is cut off, and each new connection that gets the number fails, until the process ends (MagicStack/uvloop, 653 and 738).
"""

from __future__ import annotations

import socket
from typing import Any


class OwnedSocket(socket.socket):
    """Is closed by being told to, and never by being forgotten."""

    def __del__(self) -> None:
        # In place of the finalizer that would close the descriptor.
        self.detach()


def open_socket(address: tuple[int, int, int, str, Any]) -> OwnedSocket:
    """An unconnected socket for an address as `getaddrinfo` tells it."""
    family, kind, protocol, _, _ = address
    return OwnedSocket(family, kind, protocol)
