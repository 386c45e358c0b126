"""This module makes sockets that the garbage collector does not close. Only a call of `close` closes them.

Such sockets are necessary because of a bug of uvloop (MagicStack/uvloop, 653 and 738):

1. When Python's garbage collector frees a socket object, Python closes its file descriptor.
2. uvloop uses the same file descriptor and closes it at the end of the connection. Normally, uvloop then tells the
   socket object that the descriptor is closed.
3. If the server resets a connection before the connection is complete, uvloop does not tell the socket object. A server
   that crashes resets all its new connections.
4. The operating system may give the number of the closed descriptor to another connection. When the socket object is
   freed later, Python closes this other connection by mistake. After that, every new connection with this number fails
   until the process ends.

The sockets also detect a server that has lost its power or its network. Without this detection, a watch stays open
until its idle timeout. A silent connection is probed after `KEEPALIVE_IDLE_S` seconds. If sent data stays
unacknowledged for `USER_TIMEOUT_S` seconds, the connection ends.
"""

import socket
from typing import Any

KEEPALIVE_IDLE_S = 15
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 30

_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ("TCP_USER_TIMEOUT", USER_TIMEOUT_S * 1000),
)
"""The TCP options by name. A system may lack some of them."""


class OwnedSocket(socket.socket):
    """A socket whose file descriptor stays open when the garbage collector frees the socket object."""

    def __del__(self) -> None:
        # This method replaces the finalizer of `socket.socket`, which would close the file descriptor.
        self.detach()


def open_socket(address: tuple[int, int, int, str, Any]) -> OwnedSocket:
    """Return a new socket without a connection. `address` is one result of `getaddrinfo`."""
    family, kind, protocol, _, _ = address
    made = OwnedSocket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
