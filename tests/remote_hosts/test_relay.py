"""Workers on two hosts reach each other by their relays; nobody else reaches anything.

Hosts are network namespaces (`network_lab`). Instead of TensorFlow's servers small ones listen, as
open as those are, each in a private network of its host.
"""

import struct
import time

import pytest
from agent import Agent
from network_lab.lab import lab

from placement_advisor.remote_hosts.tls import new_secret

NETWORK = 7_000_000_000_000_000_001
PORTS = (20_000, 20_001)
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


class Host:
    """A host with a relay, and one worker in a private network whose door is open."""

    def __init__(self, network, number, secret, folder, *, privileges=True):
        self.name = f"h{number}"
        self.address = network.address(self.name)
        self.own_port = PORTS[number]
        self.folder = folder / self.name
        self.folder.mkdir(mode=0o700)
        self.relay = Agent(network, self.name, privileges=privileges)
        self.relay_port = self.relay.do("start_relay", str(self.folder), secret, self.address)
        assert isinstance(self.relay_port, int), self.relay_port
        self.worker = Agent(network, self.name, privileges=privileges)
        assert self.worker.do("private_network.create") is None
        assert self.worker.do("serve", self.own_port, self.name) is None

    def open_to(self, *others):
        far = [(other.own_port, other.address, other.relay_port) for other in others]
        opened = self.worker.do(
            "relay.open_network", str(self.folder), NETWORK, [self.own_port], far
        )
        assert opened is None, opened

    def end(self):
        self.worker.end()
        self.relay.end()


@pytest.fixture(scope="module")
def secret():
    return new_secret().decode()


@pytest.fixture(scope="module")
def joined(network, secret, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    a, b = (Host(network, number, secret, folder) for number in (0, 1))
    a.open_to(b)
    b.open_to(a)
    yield a, b
    a.end()
    b.end()


@pytest.fixture
def pair(network, secret, tmp_path):
    """Two hosts for one test alone, which may harm them."""
    a, b = (Host(network, number, secret, tmp_path) for number in (0, 1))
    a.open_to(b)
    b.open_to(a)
    yield a, b
    a.end()
    b.end()


@pytest.fixture(scope="module")
def stranger(network):
    agent = Agent(network, "h2")
    yield agent
    agent.end()


def test_each_worker_reaches_the_other_at_its_loopback_and_nothing_else_listens(joined, stranger):
    a, b = joined
    assert a.worker.do("ask", "127.0.0.1", 20_001, "from a") == "h1: from a"
    assert b.worker.do("ask", "127.0.0.1", 20_000, "from b") == "h0: from b"
    for host in joined:
        assert host.relay.do("listening_ports") == [f"{host.address}:{host.relay_port}"]
    for host in joined:
        for port in PORTS:
            said = stranger.do("ask", host.address, port, "x")
            assert said.startswith("ConnectionRefusedError"), said


def test_so_they_do_where_a_network_of_ones_own_takes_a_user_namespace(network, secret, tmp_path):
    a, b = (Host(network, n, secret, tmp_path, privileges=False) for n in (0, 1))
    # A door may be a process of its own as well, which joins the network.
    apart = Agent(network, a.name, privileges=False)
    assert apart.do("user_namespace") != a.worker.do("user_namespace")
    assert apart.do("private_network.join", a.worker.pid) is None
    assert apart.do("user_namespace") == a.worker.do("user_namespace")
    far = [(b.own_port, b.address, b.relay_port)]
    assert apart.do("relay.open_network", str(a.folder), NETWORK, [a.own_port], far) is None
    b.open_to(a)
    assert a.worker.do("ask", "127.0.0.1", 20_001, "from a") == "h1: from a"
    assert b.worker.do("ask", "127.0.0.1", 20_000, "from b") == "h0: from b"
    for each in (apart, a, b):
        each.end()


@pytest.fixture(scope="module")
def other_secret():
    return new_secret().decode()


def greeting(network=NETWORK, port=20_001, mark=b"pla3"):
    return struct.pack(">4sHQ", mark, port, network).hex()


def test_a_relay_answers_holders_of_the_secret_and_nothing_that_is_no_tls(joined, stranger, secret):
    _, b = joined
    said = stranger.do("tell_tls", b.address, b.relay_port, secret, "TLSv1_3", greeting())
    assert said == "+"
    said = stranger.do("ask", b.address, b.relay_port, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    # An alert of TLS (type 21), or nothing.
    assert said in ("", RESET) or said.startswith("\x15\x03")


@pytest.mark.parametrize(
    ("holds", "newest"), [("nothing", "TLSv1_3"), ("another", "TLSv1_3"), ("it", "TLSv1_2")]
)
def test_the_relay_refuses_whoever_does_not_show_the_certificate_by_the_newest_tls(
    joined, stranger, secret, other_secret, holds, newest
):
    _, b = joined
    shown = {"nothing": None, "another": other_secret, "it": secret}[holds]
    said = stranger.do("tell_tls", b.address, b.relay_port, shown, newest, greeting())
    assert said == "" or said.startswith(("SSL", "ConnectionResetError")), said


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"port": 20_000}, "that of a far worker"),
        ({"port": 22}, "nobody's"),
        ({"network": NETWORK + 1}, "of another analysis"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_holder_of_the_secret_gets_to_no_other_port(joined, stranger, secret, asked, why):
    _, b = joined
    said = stranger.do("tell_tls", b.address, b.relay_port, secret, "TLSv1_3", greeting(**asked))
    assert said == "-"


@pytest.mark.parametrize("said", ["", "00" * 16, "ff" * 400, greeting(mark=b"pla2")])
def test_what_is_no_greeting_gets_no_answer(joined, stranger, secret, said):
    _, b = joined
    answer = stranger.do("tell_tls", b.address, b.relay_port, secret, "TLSv1_3", said)
    assert "+" not in answer
    # And others are served as before.
    assert joined[0].worker.do("ask", "127.0.0.1", 20_001, "on") == "h1: on"


def test_a_relay_with_another_secret_gets_through_to_nobody(
    network, joined, other_secret, tmp_path
):
    _, b = joined
    intruder = Host(network, 0, other_secret, tmp_path)
    intruder.open_to(b)
    said = intruder.worker.do("ask", "127.0.0.1", 20_001, "x")
    assert said == "" or said.startswith("ConnectionResetError"), said
    intruder.end()


def test_a_worker_that_ends_takes_its_network_with_it(pair):
    a, b = pair
    assert a.worker.do("keep_asking", "127.0.0.1", 20_001, "one") == "h1: one"
    b.worker.end()
    said = a.worker.do("keep_asking", "127.0.0.1", 20_001, "two")
    assert "Reset" in said or "Broken" in said or said == "end", said
    assert a.worker.do("ask", "127.0.0.1", 20_001, "x") in ("", RESET)


def test_a_relay_serves_several_networks_that_use_the_same_ports(network, pair):
    a, b = pair
    second = [Agent(network, host.name) for host in (a, b)]
    for host, agent, other in zip((a, b), second, (b, a), strict=True):
        agent.do("private_network.create")
        agent.do("serve", host.own_port, f"second of {host.name}")
        far = [(other.own_port, other.address, other.relay_port)]
        opened = agent.do("relay.open_network", str(host.folder), NETWORK + 1, [host.own_port], far)
        assert opened is None, opened
    assert second[0].do("ask", "127.0.0.1", 20_001, "x") == "second of h1: x"
    assert a.worker.do("ask", "127.0.0.1", 20_001, "x") == "h1: x"
    second[1].end()
    second[0].end()
    assert a.worker.do("ask", "127.0.0.1", 20_001, "x") == "h1: x"


def test_a_second_door_of_a_network_that_is_open_is_refused(network, pair):
    a, _ = pair
    again = Agent(network, a.name)
    again.do("private_network.create")
    said = again.do("relay.open_network", str(a.folder), NETWORK, [20_000], [])
    assert said.startswith("TestbedError: the relay to other hosts does not work"), said
    again.end()


def test_a_relay_without_an_address_leads_outwards_alone(network, joined, secret, tmp_path):
    _, b = joined
    only_out = Agent(network, "h2")
    assert only_out.do("start_relay", str(tmp_path), secret, None) is None
    assert only_out.do("listening_ports") == []
    client = Agent(network, "h2")
    client.do("private_network.create")
    far = [(20_001, b.address, b.relay_port)]
    assert client.do("relay.open_network", str(tmp_path), NETWORK, [], far) is None
    assert client.do("ask", "127.0.0.1", 20_001, "x") == "h1: x"
    for agent in (only_out, client):
        agent.end()


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "0", "0x0", "000.0.0.0"])
def test_no_way_to_write_everywhere_is_taken(network, secret, tmp_path, address):
    agent = Agent(network, "h2")
    said = agent.do("start_relay", str(tmp_path), secret, address)
    assert isinstance(said, str), said
    assert "every address" in said or "no address" in said
    assert agent.do("listening_ports") == []
    agent.end()


def test_an_address_that_is_no_way_to_the_host_is_told(network, secret, tmp_path):
    agent = Agent(network, "h2")
    said = agent.do("start_relay", str(tmp_path), secret, network.address("h1"))
    assert said.startswith("AdvisorError: cannot listen at 10.77.0.2: Cannot assign"), said
    agent.end()
    network.call("h2", ["sh", "-c", "echo 127.0.1.1 debian >> /etc/hosts"])
    agent = Agent(network, "h2")
    (tmp_path / "debian").mkdir(mode=0o700)
    said = agent.do("start_relay", str(tmp_path / "debian"), secret, "debian")
    assert said == "AdvisorError: debian is 127.0.1.1 on that host, which no other one reaches"
    assert agent.do("listening_ports") == []
    agent.end()


@pytest.mark.parametrize(
    ("address", "meant"),
    [("h2", "10.77.0.3"), ("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")],
)
def test_names_and_loopback_that_is_asked_for_are_taken(network, secret, tmp_path, address, meant):
    agent = Agent(network, "h2")
    port = agent.do("start_relay", str(tmp_path), secret, address)
    assert agent.do("listening_ports") == [f"{meant}:{port}"]
    agent.end()


@pytest.mark.slow
@pytest.mark.parametrize("idle", [True, False], ids=["idle", "data under way"])
def test_a_path_that_dies_breaks_connections_within_ten_seconds(network, pair, idle):
    a, _ = pair
    assert a.worker.do("keep_asking", "127.0.0.1", 20_001, "one") == "h1: one"
    network.unplug("h1")
    begun = time.monotonic()
    try:
        if not idle:
            a.worker.do("say", "two")
        said = a.worker.do("hear_kept")
        took_s = time.monotonic() - begun
    finally:
        network.plug_in("h1")
    assert said.startswith("ConnectionResetError"), said
    assert took_s < 10.0


@pytest.mark.slow
def test_a_full_line_of_ten_mbit_breaks_nothing_not_even_what_is_idle(secret, tmp_path):
    with lab(hosts=2, rate_bit_per_s=1e7) as slow:
        a, b = (Host(slow, number, secret, tmp_path) for number in (0, 1))
        a.open_to(b)
        b.open_to(a)
        assert a.worker.do("keep_asking", "127.0.0.1", 20_001, "before") == "h1: before"
        second = [Agent(slow, host.name) for host in (a, b)]
        for agent in second:
            agent.do("private_network.create")
        second[1].do("serve_bytes", 20_001)
        second[1].do("relay.open_network", str(b.folder), NETWORK + 1, [20_001], [])
        far = [(20_001, b.address, b.relay_port)]
        second[0].do("relay.open_network", str(a.folder), NETWORK + 1, [], far)
        # Four times 6 MB, which take 20 s: more than twice what a dead path is given.
        (took_ns,) = second[0].do("times_ns", "127.0.0.1", 20_001, 6_000_000, 1)
        assert took_ns > 4e9
        assert a.worker.do("keep_asking", "127.0.0.1", 20_001, "after") == "h1: after"
