"""A sharer's process: `python -m benchmarks.cache.sharer FD` answers the node until the socket FD is shut."""

import socket
import sys
from struct import Struct
from typing import Final

from fednode.cache.round_directory import Copies

PARCEL: Final = b"p"
ECHO: Final = b"e"
REPLY: Final = Struct("<cQ")
"""What a sharer answers: the kind it was sent, and the number of the parcel it has taken, 0 for an echo."""

_LENGTH: Final = Struct("<I")


def send(peer: socket.socket, data: bytes) -> None:
    """Send `data` with its length before it."""
    peer.sendall(_LENGTH.pack(len(data)) + data)


def receive(peer: socket.socket) -> bytes:
    """Return the next that was sent; nothing once the other side has shut."""
    head = peer.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        return b""
    return peer.recv(_LENGTH.unpack(head)[0], socket.MSG_WAITALL)


def serve(peer: socket.socket) -> None:
    """Answer echoes as they are, and parcels once they are taken, until the other side shuts."""
    copies = Copies()
    while data := receive(peer):
        if data[:1] == ECHO:
            send(peer, REPLY.pack(ECHO, 0))
            continue
        copies = copies.take(data, 1)
        send(peer, REPLY.pack(PARCEL, copies.number))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as node:
        serve(node)
