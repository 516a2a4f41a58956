"""TensorBoard as `advisor view` starts it: it answers only who asks for this machine.

The page of a stranger, open in a browser here, can have its own name lead to this machine (DNS
rebinding), and would read what TensorBoard shows as if it were the page's own. Such requests carry
that name. An address cannot be made to lead elsewhere, so that any will do.
"""

from __future__ import annotations

import ipaddress
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from placement_advisor.report.tensorboard.plugin import App, Environ, Start

_REFUSAL = b"Ask for localhost, for an address, or for the name that --host was given.\n"


def for_this_machine(answer: App, host: str) -> App:
    """Return what answers as before where an address, localhost or ``host`` is asked for."""

    def answer_or_refuse(environ: Environ, start: Start) -> Iterable[bytes]:
        if _is_this_machine(environ.get("HTTP_HOST", ""), host):
            return answer(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [_REFUSAL]

    return answer_or_refuse


def _is_this_machine(asked: str, host: str) -> bool:
    try:
        name = urlsplit(f"//{asked}").hostname or ""
        if name in ("localhost", host.lower()):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def main() -> None:
    """Serve with TensorBoard's own options, of which `--host` and `--port` must be given."""
    from tensorboard import default, main_lib, program

    def server(answer: App, flags: argparse.Namespace) -> Any:
        return program.WerkzeugServer(for_this_machine(answer, flags.host), flags)

    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    board.configure(sys.argv)
    sys.exit(board.main())


if __name__ == "__main__":
    main()
