"""Control by the relay's port: one analysis at a time, for holders of the secret."""

import pytest
from agent import Agent
from network_lab.lab import lab, refusal

from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.relay import check_may_listen, parse_place
from placement_advisor.remote_hosts.tls import new_secret


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("192.0.2.7:7000", ("192.0.2.7", 7000)),
        ("node-7:1", ("node-7", 1)),
        ("[2001:db8::7]:65535", ("2001:db8::7", 65_535)),
        ("0.0.0.0:7000", ("0.0.0.0", 7000)),
    ],
)
def test_an_address_with_a_port(text, place):
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text", ["", ":7000", "[]:7000", "node", "node:", "node:0", "node:65536", "::1:7000", "a:b:1"]
)
def test_what_is_no_address_with_a_port_is_told_with_an_example(text):
    with pytest.raises(AdvisorError, match="is no address with a port") as raised:
        parse_place(text)
    assert "[2001:db8::7]:7000" in (raised.value.hint or "")


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_everywhere_takes_a_word_more(address):
    with pytest.raises(AdvisorError, match="every network that this host is in") as raised:
        check_may_listen(address, everywhere=False)
    assert "--everywhere" in (raised.value.hint or "")
    check_may_listen(address, everywhere=True)
    check_may_listen("192.0.2.7", everywhere=False)


@pytest.fixture(scope="module")
def network():
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with lab(hosts=2) as made:
        yield made


@pytest.fixture(scope="module")
def secret():
    return new_secret(1).decode()


@pytest.fixture(scope="module")
def port(network, secret, tmp_path_factory):
    """Where control is served on the first host."""
    folder = str(tmp_path_factory.mktemp("service"))
    service, relay = Agent(network, "h0"), Agent(network, "h0")
    service.do("serve_control", folder)
    yield network.address("h0"), relay.do("start_relay", folder, secret, network.address("h0"))
    service.end()
    relay.end()


@pytest.fixture(scope="module")
def other_host(network):
    agent = Agent(network, "h1")
    yield agent
    agent.end()


def test_a_holder_of_the_secret_speaks_with_the_service(other_host, port, secret):
    for _ in range(3):
        assert other_host.do("connect_control", *port, secret) == "control: hello"


def test_whoever_has_another_secret_is_told_so(other_host, port):
    said = other_host.do("connect_control", *port, new_secret(1).decode())
    assert said.startswith(f"AdvisorError: {port[0]}:{port[1]} has another secret"), said


def test_where_nobody_waits_one_is_told_what_to_start(other_host, port, secret):
    said = other_host.do("connect_control", port[0], 1, secret)
    assert said.startswith(f"AdvisorError: {port[0]}:1 cannot be reached: Connection refused"), said
