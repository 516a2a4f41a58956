"""What one end sends the other end gets, whoever ends first; and the secret that both hold."""

import asyncio
import datetime
import random
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from placement_advisor.remote_hosts.relay import loop_in_background
from placement_advisor.remote_hosts.tls import (
    Greeter,
    Greeting,
    answer,
    carry,
    certificate,
    client_context,
    join,
    new_secret,
    server_context,
)


@pytest.fixture(scope="module")
def secret():
    return new_secret()


def tcp_pair():
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


async def tls_pair(secret):
    """Return both ends of a connection that has begun."""
    greeter = Greeter(secret)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        dialled = asyncio.ensure_future(
            greeter.dial("127.0.0.1", port, Greeting(network=1, port=20_000))
        )
        accepted, _ = await asyncio.to_thread(listening.accept)
        server, _ = await greeter.accept(accepted)
    await answer(server, welcome=True)
    return await dialled, server


async def carried(near, far):
    await carry(await join(near), far)


@pytest.fixture
def chain(secret):
    """TCP - relay - TLS - relay - TCP; `left` and `right` are the outer ends."""
    loop = loop_in_background()
    (left, left_inner), (right, right_inner) = tcp_pair(), tcp_pair()
    client, server = asyncio.run_coroutine_threadsafe(tls_pair(secret), loop).result()
    ways = [
        asyncio.run_coroutine_threadsafe(carried(near, far), loop)
        for near, far in ((left_inner, client), (right_inner, server))
    ]
    wire = client.writer.get_extra_info("socket")
    yield SimpleNamespace(left=left, right=right, wire=wire, ways=ways)
    left.close()
    right.close()
    for way in ways:
        way.result(10.0)
    loop.call_soon_threadsafe(loop.stop)


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
    for way in chain.ways:
        way.result(10.0)


@pytest.mark.parametrize("seed", range(6))
def test_both_directions_at_once_arrive_whole_and_in_order(chain, seed):
    draw = random.Random(seed)
    sent = [draw.randbytes(draw.choice([0, 1, 16_384, 262_144, 5_000_000])) for _ in "ab"]

    def send(connection, data):
        pieces = random.Random(seed)
        while data:
            size = pieces.choice([1, 100, 16_000, 70_000, 1_000_000])
            connection.sendall(data[:size])
            data = data[size:]
        connection.shutdown(socket.SHUT_WR)

    with ThreadPoolExecutor(4) as pool:
        ends = chain.left, chain.right
        sending = [pool.submit(send, end, data) for end, data in zip(ends, sent, strict=True)]
        reading = [pool.submit(read_to_end, end) for end in ends[::-1]]
    assert [each.result() for each in (*sending, *reading)] == [None, None, *sent]


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


def test_a_secret_is_good_for_two_days_and_for_a_day_back(secret):
    assert secret.startswith(b"-----BEGIN PRIVATE KEY-----")
    found = x509.load_der_x509_certificate(certificate(secret))
    now = datetime.datetime.now(datetime.UTC)
    assert now - found.not_valid_before_utc >= datetime.timedelta(days=1)
    assert found.not_valid_after_utc - found.not_valid_before_utc == datetime.timedelta(days=3)


def test_contexts_ask_for_a_certificate_and_leave_no_key_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    open_before = sorted(Path("/proc/self/fd").iterdir())
    secret = new_secret()
    for context in (server_context(secret), client_context(secret)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert sorted(Path("/proc/self/fd").iterdir()) == open_before
    assert list(tmp_path.iterdir()) == []
