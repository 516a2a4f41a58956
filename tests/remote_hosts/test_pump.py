"""What one end sends the other end gets, whatever the sizes and whoever ends first."""

import asyncio
import random
import socket
import threading

import pytest
from tls_pairs import tcp_pair, tls_pair

from placement_advisor.remote_hosts.relay import loop_in_background
from placement_advisor.remote_hosts.tls import carry, join, new_secret


@pytest.fixture(scope="module")
def secret():
    return new_secret()


class Chain:
    """TCP - relay - TLS - relay - TCP; `left` and `right` are the outer ends."""

    def __init__(self, secret):
        self.loop = loop_in_background()
        self.left, left_inner = tcp_pair()
        self.right, right_inner = tcp_pair()
        client, server = asyncio.run_coroutine_threadsafe(tls_pair(secret), self.loop).result()
        self.wire = client.writer.get_extra_info("socket")
        self.carried = [
            asyncio.run_coroutine_threadsafe(self._carry(near, far), self.loop)
            for near, far in ((left_inner, client), (right_inner, server))
        ]

    @staticmethod
    async def _carry(near, far):
        await carry(await join(near), far)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.left.close()
        self.right.close()
        for each in self.carried:
            each.result(10.0)
        self.loop.call_soon_threadsafe(self.loop.stop)


@pytest.fixture
def chain(secret):
    with Chain(secret) as made:
        yield made


def read_to_end(connection):
    got = bytearray()
    while more := connection.recv(1 << 16):
        got += more
    return bytes(got)


def test_questions_and_answers_arrive_and_an_end_is_passed_on(chain):
    chain.left.sendall(b"one")
    assert chain.right.recv(10) == b"one"
    chain.right.sendall(b"two")
    assert chain.left.recv(10) == b"two"
    chain.left.sendall(b"question")
    chain.left.shutdown(socket.SHUT_WR)
    assert read_to_end(chain.right) == b"question"
    for part in (b"a", b"long", b"answer" * 100_000):
        chain.right.sendall(part)
    chain.right.shutdown(socket.SHUT_WR)
    assert read_to_end(chain.left) == b"along" + b"answer" * 100_000
    for each in chain.carried:
        each.result(10.0)


@pytest.mark.parametrize("seed", range(6))
def test_both_directions_at_once_arrive_whole_and_in_order(secret, seed):
    draw = random.Random(seed)
    sent = [draw.randbytes(draw.choice([0, 1, 16_384, 262_144, 5_000_000])) for _ in "ab"]

    def send(connection, data, pieces):
        at = 0
        while at < len(data):
            size = pieces.choice([1, 100, 16_000, 70_000, 1_000_000])
            connection.sendall(data[at : at + size])
            at += size
        connection.shutdown(socket.SHUT_WR)

    with Chain(secret) as chain:
        senders = [
            threading.Thread(target=send, args=(end, data, random.Random(seed)))
            for end, data in zip((chain.left, chain.right), sent, strict=True)
        ]
        got = [b"", b""]

        def receive(index, end):
            got[index] = read_to_end(end)

        receivers = [
            threading.Thread(target=receive, args=(i, end))
            for i, end in enumerate((chain.right, chain.left))
        ]
        for thread in (*senders, *receivers):
            thread.start()
        for thread in (*senders, *receivers):
            thread.join()
        assert got == sent


def test_a_sender_must_wait_for_a_receiver_that_does_not_read(chain):
    most = 200_000_000  # Buffers of the system have less together.
    chain.left.settimeout(0.5)
    with pytest.raises(TimeoutError):
        chain.left.sendall(bytes(most))
    # And it is told when that ends.
    chain.right.close()
    chain.left.settimeout(10.0)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        chain.left.sendall(bytes(most))


@pytest.mark.parametrize("breaks", ["near", "wire"])
def test_a_connection_that_breaks_breaks_the_other_one(chain, breaks):
    chain.left.sendall(b"x")
    assert chain.right.recv(1) == b"x"
    if breaks == "near":
        chain.left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        chain.left.close()
    else:  # As when a host on the way forgets it: no word of TLS that it ends.
        chain.wire.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionResetError):
        chain.right.recv(1)
