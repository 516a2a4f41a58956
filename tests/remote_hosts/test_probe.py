"""What a child tells of its host's network, here on loopback."""

import socket
import threading

import pytest

from placement_advisor.machine.this_machine import free_ports
from placement_advisor.remote_hosts import host_facts
from placement_advisor.remote_hosts.host_facts import WayTried


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_loopback_is_an_interface_with_large_frames(address):
    place = host_facts.network_place(address)
    assert place.interface == "lo"
    assert place.mtu_bytes == 65_536
    assert place.load.cores >= 0


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "nowhere.invalid"])
def test_an_address_of_another_host_is_on_no_interface(address):
    assert host_facts.interface_of(address) is None


def test_a_way_carries_small_messages_and_large_ones_or_there_is_none():
    (port,) = free_ports(1)
    host_facts.answer_at("127.0.0.1", port)
    tried = host_facts.try_way("127.0.0.1", port)
    assert tried.small_ns > 0
    assert tried.large_passes
    (port,) = free_ports(1)
    assert host_facts.try_way("127.0.0.1", port) == WayTried(small_ns=None, large_passes=False)


def test_a_way_that_only_small_messages_pass_is_told():
    listening = socket.create_server(("127.0.0.1", 0))

    def answer_small_ones():
        connection, _ = listening.accept()
        with connection, listening:
            while len(message := connection.recv(1 << 16)) == 9:  # A length, and one byte.
                assert message
                connection.sendall(b"k")

    answering = threading.Thread(target=answer_small_ones)
    answering.start()
    tried = host_facts.try_way("127.0.0.1", listening.getsockname()[1])
    answering.join()
    assert tried.small_ns is not None
    assert not tried.large_passes
