"""The `advisor` command, and the one place where errors become text and exit codes."""

from __future__ import annotations

import sys

import typer

from placement_advisor import __version__
from placement_advisor.cli.analyze import analyze
from placement_advisor.errors import AdvisorError

USAGE_OR_TOOL_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    name="advisor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Says whether and how to split a TensorFlow model over devices.",
    epilog="Exit codes: 0 done or passed · 1 a check failed · 2 usage error or could not run · "
    "130 interrupted.",
)
app.command()(analyze)


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Options before a command."""
    if version:
        typer.echo(f"placement-advisor {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; errors that a user can fix become one message and exit code 2."""
    try:
        app(standalone_mode=True)
    except AdvisorError as error:
        print(f"advisor: error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"advisor: hint: {error.hint}", file=sys.stderr)
        sys.exit(USAGE_OR_TOOL_ERROR)
    except KeyboardInterrupt:
        print("advisor: interrupted, nothing was written", file=sys.stderr)
        sys.exit(INTERRUPTED)
