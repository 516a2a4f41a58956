"""A network of one's own, seen from inside and from outside."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from real_runs import needs_private_network

from placement_advisor.errors import TestbedError
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

listeners = RemoteModule("listeners")
refusing_system = RemoteModule("refusing_system")
_LIMIT_S = 600.0
pytestmark = needs_private_network


@pytest.fixture
def owner() -> Iterator[Child]:
    with Child("owner") as child:
        child.call(private_network.create, time_limit_s=_LIMIT_S)
        yield child


def test_a_private_network_has_loopback_and_nothing_else(owner: Child) -> None:
    names = [name for _, name in owner.call(socket.if_nameindex, time_limit_s=_LIMIT_S)]
    assert names == ["lo"]
    port = owner.call(listeners.listen, time_limit_s=_LIMIT_S)
    assert owner.call(listeners.can_connect, port, time_limit_s=_LIMIT_S)


def test_who_joins_reaches_it_and_others_do_not(owner: Child, child: Child) -> None:
    port = owner.call(listeners.listen, time_limit_s=_LIMIT_S)
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", port), timeout=1),
    ):
        pass
    child.call(private_network.join, owner.pid, time_limit_s=_LIMIT_S)
    assert child.call(listeners.can_connect, port, time_limit_s=_LIMIT_S)


def test_two_private_networks_use_the_same_port(owner: Child, child: Child) -> None:
    port = owner.call(listeners.listen, time_limit_s=_LIMIT_S)
    child.call(private_network.create, time_limit_s=_LIMIT_S)
    assert child.call(listeners.listen, port, time_limit_s=_LIMIT_S) == port


@pytest.mark.parametrize("step", [private_network.create, private_network.join])
def test_a_system_that_refuses_is_told_in_words(
    owner: Child, child: Child, step: Callable[..., None]
) -> None:
    child.call(refusing_system.refuse_namespaces, time_limit_s=_LIMIT_S)
    args = (owner.pid,) if step is private_network.join else ()
    with pytest.raises(TestbedError, match="no private network: Operation not permitted"):
        child.call(step, *args, time_limit_s=_LIMIT_S)
