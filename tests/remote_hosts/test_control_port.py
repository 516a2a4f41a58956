"""Control by the relay's port: one analysis at a time, for holders of the secret."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from agent import Agent
from network_lab.lab import Lab, lab, refusal

from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.control_port import check_may_listen, parse_place
from placement_advisor.remote_hosts.secret import new_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_lab = pytest.mark.skipif(refusal() is not None, reason=str(refusal()))


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
def network() -> Iterator[Lab]:
    with lab(hosts=3) as made:
        yield made


@pytest.fixture(scope="module")
def secret() -> str:
    return new_secret(1).decode()


@pytest.fixture(scope="module")
def port(
    network: Lab, secret: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """Where control is served on the first host."""
    folder = str(tmp_path_factory.mktemp("service"))
    service, relay = Agent(network, "h0"), Agent(network, "h0")
    service.do("serve_control", folder)
    yield network.address("h0"), relay.do("start_relay", folder, secret, network.address("h0"))
    service.end()
    relay.end()


def begin(network: Lab, host: str, port: tuple[str, int], secret: str) -> tuple[Agent, str]:
    agent = Agent(network, host)
    return agent, agent.do("connect_control", *port, secret)


@needs_lab
def test_one_analysis_is_served_and_another_one_told_until_the_first_ends(network, port, secret):
    first, said = begin(network, "h1", port, secret)
    assert said == "control: hello"
    second, said = begin(network, "h2", port, secret)
    assert said == "another one is served"
    second.end()
    first.do("end_control")
    # The end takes a moment to get there.
    for _ in range(100):
        third, said = begin(network, "h2", port, secret)
        third.end()
        if said == "control: hello":
            break
        time.sleep(0.1)
    assert said == "control: hello"
    first.end()


@needs_lab
def test_who_is_killed_while_served_makes_room(network, port, secret):
    first, said = begin(network, "h1", port, secret)
    assert said == "control: hello"
    first.end()
    for _ in range(100):
        second, said = begin(network, "h2", port, secret)
        second.end()
        if said == "control: hello":
            break
        time.sleep(0.1)
    assert said == "control: hello"


@needs_lab
def test_whoever_has_another_secret_is_told_so(network, port):
    agent, said = begin(network, "h1", port, new_secret(1).decode())
    assert said.startswith(f"AdvisorError: {port[0]}:{port[1]} has another secret"), said
    agent.end()


@needs_lab
def test_where_nobody_waits_one_is_told_what_to_start(network, port, secret):
    agent, said = begin(network, "h1", (port[0], 1), secret)
    assert said.startswith(f"AdvisorError: {port[0]}:1 cannot be reached: Connection refused"), said
    agent.end()
