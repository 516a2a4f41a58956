"""A socket that listens in a child's network."""

import socket

_listening = []


def listen(port=0):
    """Listen on loopback; return the port."""
    listener = socket.create_server(("127.0.0.1", port))
    _listening.append(listener)
    return int(listener.getsockname()[1])


def can_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
