"""A network of one's own, seen from inside and from outside."""

import socket

import pytest
from real_runs import needs_private_network

from placement_advisor.errors import TestbedError
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.tf.run import private_network

refusing_system = RemoteModule("refusing_system")
runner_access = RemoteModule("runner_access")
pytestmark = needs_private_network


@pytest.fixture
def owner():
    with Child("owner") as child:
        child.call(private_network.create)
        yield child


def test_a_private_network_has_loopback_and_ports_of_its_own(owner, child):
    names = [name for _, name in owner.call(socket.if_nameindex)]
    assert names == ["lo"]
    port = owner.call(runner_access.listen)
    assert owner.call(runner_access.can_connect, port)

    port = owner.call(runner_access.listen)
    child.call(private_network.create)
    assert child.call(runner_access.listen, port) == port


def test_who_joins_reaches_it_and_others_do_not(owner, child):
    port = owner.call(runner_access.listen)
    assert not child.call(runner_access.can_connect, port)
    child.call(private_network.join, owner.pid)
    assert child.call(runner_access.can_connect, port)


@pytest.mark.parametrize("step", [private_network.create, private_network.join])
def test_a_system_that_refuses_is_told_in_words(owner, child, step):
    child.call(refusing_system.refuse_namespaces)
    args = (owner.pid,) if step is private_network.join else ()
    with pytest.raises(TestbedError, match="no private network: Operation not permitted"):
        child.call(step, *args)
