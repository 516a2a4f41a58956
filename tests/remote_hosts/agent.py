"""A process on a host of the lab that does what a test asks, in lines of JSON.

As a program it answers on its standard output until its standard input ends; `Agent` asks one.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from operator import attrgetter

from placement_advisor.remote_hosts import relay
from placement_advisor.remote_hosts.tls import client_context
from placement_advisor.tf.run import private_network  # noqa: F401 - asked for by name

_LIMIT_S = 15.0
_CHUNK_BYTES = 1 << 18
_HEAD_BYTES = 8
WARM_UP = 3


class Agent:
    """A process on a host."""

    def __init__(self, lab, host, *, privileges=True):
        """Start it; without privileges it is root all the same, or what a lab takes for root."""
        less = [] if privileges else ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        self._process = lab.run(
            host,
            [*less, sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.pid = self.do("os.getpid")

    def do(self, name, *args):
        """Run a function that this module knows there, and return what it returns or raises."""
        self._process.stdin.write(json.dumps([name, args]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        with self._process:
            self._process.kill()


def user_namespace():
    return os.readlink("/proc/self/ns/user")  # noqa: PTH115 - it points to nothing


def start_relay(folder, secret, address):
    return relay.start(folder, secret.encode(), address)


def _serve(port, answer):
    """Answer connections in the background; on every interface, as TensorFlow does."""
    listening = socket.create_server(("0.0.0.0", port))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def accept():
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def serve(port, name):
    """Answer each message with this name before it."""

    def answer(connection):
        with connection:
            while said := connection.recv(1_000):
                connection.sendall(f"{name}: ".encode() + said)

    _serve(port, answer)


def ask(address, port, message):
    """Say something over a connection of its own and return the answer."""
    with socket.create_connection((address, port), _LIMIT_S) as connection:
        connection.sendall(message.encode())
        return connection.recv(1_000).decode()


_kept = []


def keep_asking(address, port, message):
    if not _kept:
        _kept.append(socket.create_connection((address, port), _LIMIT_S))
    _kept[0].sendall(message.encode())
    answer = _kept[0].recv(1_000)
    return answer.decode() if answer else "end"


def say(message):
    _kept[0].sendall(message.encode())


def hear_kept():
    return _kept[0].recv(1_000).decode()


def tell_tls(address, port, secret, newest, message):
    """Speak TLS, with a certificate or without, and return the answer to a message (hex)."""
    if secret is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
    else:
        context = client_context(secret.encode())
    context.verify_mode = ssl.CERT_NONE  # A stranger takes whatever it gets.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion[newest]
    with (
        socket.create_connection((address, port), _LIMIT_S) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(bytes.fromhex(message))
        return connection.recv(1_000).decode()


def serve_bytes(port):
    """Take as many bytes as each message says first, and answer with one."""

    def take(connection):
        buffer = bytearray(_CHUNK_BYTES)
        with connection, connection.makefile("rb") as reading:
            while head := reading.read(_HEAD_BYTES):
                left = int.from_bytes(head, "big")
                while left:
                    left -= reading.readinto(memoryview(buffer)[: min(left, _CHUNK_BYTES)])
                connection.sendall(b"k")

    _serve(port, take)


def times_ns(address, port, size_bytes, repetitions):
    """Return what it takes until so many bytes are sent and the answer is there, a few times."""
    message = size_bytes.to_bytes(_HEAD_BYTES, "big") + bytes(size_bytes)
    times = []
    with socket.create_connection((address, port), _LIMIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)  # A slow line may take minutes.
        for _ in range(WARM_UP + repetitions):
            begun = time.perf_counter_ns()
            connection.sendall(message)
            if connection.recv(1) != b"k":
                raise ConnectionResetError
            times.append(time.perf_counter_ns() - begun)
    return times[WARM_UP:]


def listening_ports():
    """Return where this process's network listens, as `ss` says it."""
    said = subprocess.run(["ss", "-Htln"], check=True, capture_output=True, text=True).stdout
    return sorted(line.split()[3] for line in said.splitlines())


def _answer(name, args):
    try:
        return attrgetter(name)(sys.modules[__name__])(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_answer(*json.loads(line))), flush=True)
