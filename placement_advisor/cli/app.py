"""The `advisor` command, and the one place where errors become text and exit codes."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from placement_advisor import __version__, defaults
from placement_advisor.cli import machines
from placement_advisor.cli.analyze import analyze
from placement_advisor.cli.check import check, explain
from placement_advisor.cli.console import ReaderGoneError, open_streams, say
from placement_advisor.cli.graphs import graph, search, trace
from placement_advisor.cli.options import OfScript
from placement_advisor.cli.results import diff, profile, report, show, view
from placement_advisor.cli.run import run
from placement_advisor.errors import AdvisorError, full_disk
from placement_advisor.report.progress import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

USAGE_OR_TOOL_ERROR = 2
INTERRUPTED = 130
# Ctrl-C, `kill`, and a terminal that is closed.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
READER_GONE = 128 + signal.SIGPIPE  # what a shell calls it when a program ends by that signal

app = typer.Typer(
    name="advisor",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Says whether and how to split a TensorFlow model over devices.",
    epilog="Exit codes: 0 done or passed · 1 a check failed · 2 usage error or could not run · "
    "130 interrupted.",
)
# By panel of the help, each with what its example has behind its name.
_COMMANDS: dict[str, dict[Callable[..., None], str]] = {
    "Start": {
        analyze: "train.py -- --epochs 1",
        run: "train.py -- --epochs 10",
        show: "advisor-out/train",
        view: "advisor-out",
        check: "--update",
        machines.doctor: "",
    },
    "Explore": {
        machines.compare_hardware: "train.py 4xV100-NVLink 4xA100",
        machines.balance: "train.py --devices 2",
        profile: "logs/train",
        diff: "before/train advisor-out/train",
        report: "advisor-out/train",
        explain: "PA101",
    },
    "Machines": {
        machines.calibrate: "--devices 2",
        machines.hardware: "V100",
    },
    "Files": {
        trace: "train.py -o step.graph.json.gz",
        graph: "step.graph.json.gz --format mermaid -o layers.mmd",
        search: "step.graph.json.gz --hardware 4xA100",
    },
}
_OF_SCRIPT = (analyze, run, trace, machines.balance, machines.compare_hardware)
for _panel, _commands in _COMMANDS.items():
    for _command, _words in _commands.items():
        _name = _command.__name__.replace("_", "-")
        app.command(
            _name,
            cls=OfScript if _command in _OF_SCRIPT else None,
            rich_help_panel=_panel,
            epilog=f"Example: advisor {_name} {_words}".rstrip(),
        )(_command)
app.command("worker", hidden=True)(machines.worker)  # For `--launch` alone to type.
_TRAINS = re.compile(r"^\s*(import|from)\s+(tensorflow|keras|tf_keras)\b", re.MULTILINE)
# Imports stand at the top of a script.
_HEAD_CHARS = 20_000


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"placement-advisor {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Say what to type next in this folder, if no command is named."""
    if context.invoked_subcommand is None:
        found = dict(_next_commands())
        width = max(map(len, found))
        print(harmless("\n".join(f"{words:<{width}}  {why}" for words, why in found.items())))


def _next_commands() -> Iterator[tuple[str, str]]:
    """Yield what can be typed in this folder, each with what it does."""
    from placement_advisor.report.find_analysis import find_analysis, read_analysis
    from placement_advisor.results.analysis import ANALYSIS

    folder, script = None, _script_here()
    with suppress(AdvisorError):  # There is none, or it is damaged.
        folder = find_analysis(Path(defaults.OUTPUT))
        analysed = read_analysis(folder / ANALYSIS).model.path
        yield f"advisor show {shlex.quote(str(folder))}", "the newest analysis here"
        if analysed.endswith(".py") and Path(analysed).is_file():
            yield f"advisor run {shlex.quote(analysed)}", "train with the split that it recommends"
    if folder is None or script is not None:
        word = "TRAIN.py" if script is None else shlex.quote(script)
        yield f"advisor analyze {word}", "does a split over devices make its step faster?"
    if Path(defaults.LOCK_FILE).is_file():
        yield "advisor check", f"are its models placed as well as {defaults.LOCK_FILE} says?"
    if folder is None:
        yield "advisor doctor", "is this machine ready?"
    yield "advisor --help", "all commands"


def _script_here() -> str | None:
    """Return a script in this folder that imports TensorFlow, one called train if there is."""
    found = []
    for path in filter(Path.is_file, Path().glob("*.py")):
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            if _TRAINS.search(file.read(_HEAD_CHARS)):
                found.append(path.name)
    return min(found, key=lambda name: (not name.startswith("train"), name), default=None)


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
