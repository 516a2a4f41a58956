"""`advisor worker`: lends this machine's devices to an analysis that another machine runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from placement_advisor.errors import AdvisorError

_STANDARD_INPUT = 0


def worker(
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="Take orders on standard input and answer on standard output."
        ),
    ] = False,
) -> None:
    """Lend this machine's devices to one analysis. `advisor analyze --hosts` runs it there.

    It ends with its input, or when nothing is heard for 8 s, and leaves nothing behind.
    """
    if not stdio or os.isatty(_STANDARD_INPUT):
        raise AdvisorError(
            "worker: no command gives orders here",
            hint="`advisor analyze --hosts` runs `advisor worker --stdio` on each host, by ssh",
        )
    from placement_advisor.remote_hosts.conversation import take_standard_streams
    from placement_advisor.remote_hosts.service import serve

    serve(take_standard_streams())
