from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from light_hosts import light_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.remote_hosts.remote_host import RemoteChild, RemoteHost


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteHost]:
    """A host that all tests use who leave it as it is."""
    with light_host(tmp_path_factory.mktemp("cache-of-b")) as light:
        yield light.host


@pytest.fixture
def child(host: RemoteHost) -> Iterator[RemoteChild]:
    with host.child("b:0") as child:
        yield child
