"""The `advisor` command, and the one place where errors become text and exit codes."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from placement_advisor import __version__
from placement_advisor.cli.analyze import analyze
from placement_advisor.cli.check import check, explain
from placement_advisor.cli.console import ReaderGoneError, open_streams, say
from placement_advisor.cli.graphs import graph, search, simulate, trace
from placement_advisor.cli.machines import balance, calibrate, compare_hardware, doctor, hardware
from placement_advisor.cli.options import OfScript
from placement_advisor.cli.results import diff, profile, report, show, view
from placement_advisor.cli.run import run
from placement_advisor.cli.worker import worker
from placement_advisor.errors import AdvisorError, full_disk
from placement_advisor.report.progress import harmless

if TYPE_CHECKING:
    from types import FrameType

USAGE_OR_TOOL_ERROR = 2
INTERRUPTED = 130
# Ctrl-C, `kill`, and a terminal that is closed.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READER_GONE = 128 + signal.SIGPIPE  # what a shell calls it when a program ends by that signal

app = typer.Typer(
    name="advisor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Says whether and how to split a TensorFlow model over devices.",
    epilog="Exit codes: 0 done or passed · 1 a check failed · 2 usage error or could not run · "
    "130 interrupted.",
)
app.command(cls=OfScript)(analyze)
app.command(cls=OfScript)(run)
app.command()(show)
app.command()(diff)
app.command()(view)
app.command()(report)
app.command(cls=OfScript)(trace)
app.command()(graph)
app.command()(simulate)
app.command()(search)
app.command()(check)
app.command(cls=OfScript)(balance)
app.command(cls=OfScript)(compare_hardware)
app.command()(profile)
app.command()(calibrate)
app.command()(doctor)
app.command()(hardware)
app.command()(worker)
app.command()(explain)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"placement-advisor {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options before a command."""


def main() -> None:
    """Run the command; errors that a user can fix become one message and exit code 2."""
    for number in _ENDING:
        # Under `nohup` the terminal may be closed; Ctrl-C and `kill` are always meant for us.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    open_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except ReaderGoneError:
        sys.exit(READER_GONE)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # Typer has made it of a KeyboardInterrupt.
            say("interrupted")
        raise
    except Exception as error:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
            # Compiled code has made another error of a KeyboardInterrupt.
            say("interrupted")
            sys.exit(INTERRUPTED)
        if isinstance(error, AdvisorError):
            _end(error)
        if isinstance(error, OSError) and (full := full_disk(str(error))):
            _end(full)
        print(harmless(traceback.format_exc()), end="", file=sys.stderr)
        say("this is a bug in advisor, please report it")
        sys.exit(USAGE_OR_TOOL_ERROR)


def _end(error: AdvisorError) -> NoReturn:
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")
    sys.exit(USAGE_OR_TOOL_ERROR)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop at the first signal, and let no second one disturb the cleaning up."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":  # How a command starts another one on this machine.
    main()
