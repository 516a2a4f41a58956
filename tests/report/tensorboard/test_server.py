"""Who is answered: requests for this machine, and none for a name that leads here."""

from __future__ import annotations

import pytest

from placement_advisor.report.tensorboard.server import for_this_machine


def status(asked: str | None, host: str = "127.0.0.1") -> str:
    said: list[str] = []

    def answer(environ: object, start: object) -> list[bytes]:
        said.append("200 OK")
        return []

    environ = {} if asked is None else {"HTTP_HOST": asked}
    for_this_machine(answer, host)(environ, lambda line, headers: said.append(line))
    (line,) = said
    return line


ANSWERED = ["localhost", "LOCALHOST:6006", "127.0.0.1:6006", "192.0.2.7", "[::1]:6006"]
REFUSED = [
    *(None, "", "rebound.example", "rebound.example:6006", "localhost.rebound.example", "::1"),
    *("127.0.0.1.rebound.example", "user@rebound.example", "[rebound.example]", "[::1", "0x7f.1"),
]


@pytest.mark.parametrize("asked", [*ANSWERED, "[2001:db8::7]"])
def test_addresses_and_localhost_are_answered(asked: str) -> None:
    assert status(asked) == "200 OK"


@pytest.mark.parametrize("asked", REFUSED)
def test_other_names_are_refused(asked: str | None) -> None:
    assert status(asked) == "403 Forbidden"


def test_the_name_that_was_given_is_answered() -> None:
    assert status("Station.example:6006", "station.EXAMPLE") == "200 OK"
    assert status("other.example:6006", "station.example") == "403 Forbidden"
