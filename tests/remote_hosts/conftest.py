import pytest
from light_hosts import light_host
from network_lab.lab import lab, refusal

from placement_advisor.remote_hosts import conversation


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    """A host that all tests use who leave it as it is."""
    with light_host(tmp_path_factory.mktemp("cache-of-b")) as light:
        yield light.host


@pytest.fixture
def child(host):
    with host.child("b:0") as child:
        yield child


@pytest.fixture
def soon_silent(monkeypatch):
    """Silence that does not take a test's time, and is long for a busy machine all the same."""
    monkeypatch.setattr(conversation, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(conversation, "SILENCE_S", 2.0)


@pytest.fixture(scope="module")
def network():
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with lab(hosts=3) as made:
        yield made
