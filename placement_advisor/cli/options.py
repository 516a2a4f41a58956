"""Options that several commands share: the source of a model, devices, hosts."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from placement_advisor import defaults
from placement_advisor.errors import AdvisorError
from placement_advisor.tf.load.model_source import ModelSource, module_path, split_name
from placement_advisor.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from placement_advisor.analysis.hosts import HostOptions


def takes(**made_by: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the functions that make its arguments.

    ``@takes(source=model_source)`` replaces the parameter ``source`` of a command by those of
    `model_source`, and calls the command with what this returns.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            for name, make in made_by.items():
                given = {option: values.pop(option) for option in signature(make).parameters}
                values[name] = make(**given)
            command(**values)

        parameters: list[Parameter] = []
        for own in _parameters(command, *made_by):
            make = made_by.get(own.name)
            made = [own] if make is None else _parameters(make)
            # By keyword, where those without a default need not come first.
            parameters += [each.replace(kind=Parameter.KEYWORD_ONLY) for each in made]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _parameters(function: Callable[..., Any], *made: str) -> Iterable[Parameter]:
    for name in ("return", *made):  # Their types are imported for type checkers alone.
        function.__annotations__.pop(name, None)
    return signature(function, eval_str=True).parameters.values()


class Mode(StrEnum):
    """What to analyse."""

    TRAIN = "train"
    INFER = "infer"


# As `families.NAMES` has them, whose import takes NumPy's.
CANDIDATES = (
    "towers, towers-forward-only, pipeline, parameters-on-host, tail-on-host, loops-on-host, "
    "alternating, alternating-ops, searched, batch, variables-on-host, variables-spread, mirrored, "
    "batch-towers"
)


def complete_candidates(incomplete: str) -> list[str]:
    """Return what a list of names, with commas between them, can become; Typer takes what fits."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in CANDIDATES.split(", ")]


def complete_hardware(incomplete: str) -> list[str]:
    """Return the machines that presets make of two devices, or as many as the word says."""
    from placement_advisor.machine.presets import hardware_figures

    count = incomplete.partition("x")[0] or "2"
    devices = hardware_figures()["devices"].items()
    links = [(name, link) for name, table in devices for link in ("", *table["links"])]
    return [f"{count}x{name}{link and '-'}{link}" for name, link in links]


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Module = Annotated[
    bool, typer.Option("-m", "--module", help="PATH names a module, as in python -m.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
OpenPorts = Annotated[
    bool,
    typer.Option(
        "--open-ports",
        help="Run workers even where the system gives them no private network. Anyone who reaches "
        "them over the network can then read and write your files.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Time allowed for tracing the step, and for loading a model that is not a script.",
    ),
]
# Those of the command that runs.
_arguments: ContextVar[tuple[str, ...]] = ContextVar("_arguments", default=())


class OfScript(typer.core.TyperCommand):
    """A command of a script, whose own arguments stand behind ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the script's arguments away before the rest is parsed."""
        at = args.index("--") if "--" in args else len(args)
        _arguments.set(tuple(args[at + 1 :]))
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what the usage line has."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


def script_arguments() -> tuple[str, ...]:
    """Return what stands behind ``--``."""
    return _arguments.get()


def model_source(
    model: Annotated[
        str,
        typer.Argument(
            metavar="PATH[:NAME]",
            help="Python script (its own arguments behind --), .keras file, SavedModel directory "
            "or frozen graph (.pb). Append :NAME for a signature, or for one object of a "
            "script that should not run.",
        ),
    ],
    module: Module = False,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Step of the script to take: a model, a function, or a line, as train.py:14. "
            "Default: what trains, of several the one that takes most time.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per step. Default: as in the example inputs, else 32."),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(help="Training step or inference. Default: train if the model is compiled."),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Outputs of a frozen graph: names of ops or tensors."),
    ] = None,
    time_limit: TimeLimit = defaults.TIME_LIMIT_S,
    capture_timeout: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="How long a script may run until its steps are seen."
        ),
    ] = defaults.CAPTURE_TIMEOUT_S,
) -> ModelSource:
    """Return where the model comes from, by the options of a command that takes one.

    Raises:
        ModelError: there is no path, or no such module.
        AdvisorError: outputs are given, but none is named.
    """
    path, name = (module_path(model), None) if module else split_name(model)
    return ModelSource(
        path=path,
        name=name,
        mode=None if mode is None else mode.value,
        batch_size=batch_size,
        outputs=split_names("--outputs", outputs) if outputs is not None else (),
        time_limit_s=time_limit,
        arguments=_arguments.get(),
        module=model if module else None,
        step=step,
        capture_timeout_s=capture_timeout,
    )


def split_names(option: str, words: str) -> tuple[str, ...]:
    """Split the value of an option that takes names with commas between them.

    Raises:
        AdvisorError: there is no name in it.
    """
    names = tuple(name.strip() for name in words.split(",") if name.strip())
    if not names:
        raise AdvisorError(f"{option} names none", hint=f"e.g. {option} first,second")
    return names


def split_ratios(option: str, words: str) -> tuple[float, ...]:
    """Split the value of an option that takes numbers with colons between them.

    Raises:
        AdvisorError: something in it is no number.
    """
    try:
        return tuple(float(word) for word in words.split(":"))
    except ValueError:
        raise AdvisorError(f"{option} {words}: not numbers", hint=f"e.g. {option} 3:2") from None


def split_sizes(option: str, words: str) -> tuple[int, ...]:
    """Split the value of an option that takes sizes in bytes with colons between them.

    Raises:
        AdvisorError: something in it is no size, or zero.
    """
    try:
        sizes = tuple(parse_bytes(word) for word in words.split(":"))
    except ValueError as error:
        raise AdvisorError(f"{option} {words}: {error}", hint=f"e.g. {option} 16GB:8GB") from None
    if 0 in sizes:
        raise AdvisorError(f"{option} {words}: a device has no memory", hint="leave it out")
    return sizes


_FEWEST_DEVICES = 2


class TestbedChoice(StrEnum):
    """Where to run."""

    GPUS = "gpus"
    WORKERS = "workers"
    LOGICAL_CPUS = "logical-cpus"
    NONE = "none"


class LinkChoice(StrEnum):
    """How hosts reach one another."""

    TLS = "tls"
    DIRECT = "direct"


def hosts_asked(
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="A:2,B:2",
            help="Run on these hosts, with so many devices of each (docs/how-to/hosts.md). "
            "`localhost` is this machine. An address behind @ is where the others reach it, if not "
            "by its name: a:2@10.0.0.1. `slurm` and `tf-config` take them from the environment.",
        ),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The same as --hosts, a line for each host, such as: a slots=2."
        ),
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help=f"Command that reaches a host. Default: '{defaults.LAUNCH}'; also "
            "'srun -w {host} -N1 -n1', 'kubectl exec -i {host} --'.",
        ),
    ] = None,
    link: Annotated[
        LinkChoice | None,
        typer.Option(
            "--link",
            help="How hosts reach one another: by a relay with TLS (the default), or directly. "
            "Direct connections have no authentication.",
        ),
    ] = None,
) -> HostOptions | None:
    """Return the hosts that the options of a command ask for, None if they ask for none.

    Raises:
        AdvisorError: the options contradict each other, or name no hosts.
    """
    if hosts is None and hostfile is None:
        for option, value in (("--launch", launch), ("--link", link)):
            if value is not None:
                raise AdvisorError(f"{option} needs --hosts or --hostfile")
        return None
    from placement_advisor.analysis import hosts as known
    from placement_advisor.machine import testbed_plan

    if hosts is not None and hostfile is not None:
        raise AdvisorError("--hosts and --hostfile cannot be used together")
    if hostfile is not None:
        requests = known.read_hostfile(hostfile)
    elif hosts in list(known.HostSource):
        requests = known.hosts_from_environment(known.HostSource(hosts))
    else:
        requests = known.parse_hosts(hosts or "")
    asked = known.HostOptions(
        requests=requests,
        launch=launch or defaults.LAUNCH,
        link=testbed_plan.HostLink((link or LinkChoice.TLS).value),
    )
    if asked.device_count < _FEWEST_DEVICES:
        raise AdvisorError(
            "one device has nothing to be split over", hint="ask for two or more: --hosts a:1,b:1"
        )
    return asked


def refuse_beside_hosts(asked: HostOptions | None, others: Mapping[str, bool]) -> None:
    """Refuse options that hosts leave no room for; ``others`` says which are given.

    Raises:
        AdvisorError: one is.
    """
    for option, is_given in others.items():
        if asked is not None and is_given:
            raise AdvisorError(
                f"{option} and --hosts cannot be used together",
                hint="where nothing is to run, `advisor calibrate --hosts … -o cluster.toml` "
                "writes what --hardware takes",
            )
