"""Testbeds over two hosts of a lab, for benchmarks that run themselves on the first of them."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from silent import Silent

from placement_advisor.analysis.hosts import HostOptions, connect
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.remote_hosts.host_requests import parse_hosts
from placement_advisor.testbed.testbed import Testbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def host_options(parser: argparse.ArgumentParser) -> None:
    """Take the options that `TwoHosts` gives."""
    for option in ("--hosts", "--launch"):
        parser.add_argument(option, help=argparse.SUPPRESS)


@contextlib.contextmanager
def host_testbed(
    hosts: str, launch: str, scratch: Path, link: HostLink = HostLink.TLS
) -> Iterator[Testbed]:
    """Connect hosts and make their testbed, which is not started yet."""
    with contextlib.ExitStack() as stack:
        asked = HostOptions(requests=parse_hosts(hosts), launch=launch, link=link)
        connected = connect(asked, stack, Silent())
        testbed = Testbed(connected.plan, scratch=scratch, site=connected.site(scratch, stack))
        stack.callback(testbed.close)
        yield testbed
