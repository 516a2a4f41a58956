"""What `advisor analyze` is asked."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from placement_advisor import defaults
from placement_advisor.candidates.families import NAMES, SPLITS
from placement_advisor.machine.testbed_plan import HostLink, TestbedKind
from placement_advisor.machine.this_machine import digest
from placement_advisor.processes.calls import redacted_arguments
from placement_advisor.solvers.effort import Effort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.analysis.hosts import HostOptions
    from placement_advisor.tf.load.model_source import ModelSource


T = TypeVar("T")

# Options by which nothing runs.
NO_RUN, QUICK = "--no-run", "--quick"
RESUME = "--resume"
OPEN_PORTS = "--open-ports"
# What a name of hardware or of a function may hold that a folder's had better not.
_NOT_IN_NAMES = re.compile(r"[^\w.+]+")
# Of 255 bytes that file systems take, with room for a hash, and for names that are not ASCII.
_MOST_CHARS = 100
_FEW_CHARS = 6
# What splits the batch is traced anew, at the size of each share: more than quick.
_QUICK_FAMILIES = tuple(name for name in NAMES if name not in SPLITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked; see its help. ``candidates`` is None if none is named.

    ``ratios`` are those of the samples on each device where the batch is split, None for even ones.
    ``rounds`` is None for as many as it takes; ``refine`` is how many candidates may join once
    others have run. What is ``quick`` does not ``run``. ``devices`` are
    those of ``hosts``, if there are any; None runs on this machine. ``output`` is None if no folder
    was named. What is to ``resume`` adds rounds to those that the folder has.
    """

    source: ModelSource
    devices: int = defaults.DEVICES
    hardware: str | None = None
    costs: Path | None = None
    testbed: TestbedKind | None = None
    hosts: HostOptions | None = None
    candidates: tuple[str, ...] | None = None
    ratios: tuple[float, ...] | None = None
    effort: Effort = field(default_factory=partial(Effort, units=defaults.EFFORT))
    steps: int = defaults.STEPS
    rounds: int | None = None
    refine: int = defaults.REFINE
    run: bool = True
    quick: bool = False
    open_ports: bool = False
    output: Path | None = None
    resume: bool = False

    @property
    def folder(self) -> Path:
        """The folder for the analysis: the one that was named, else one named by what is asked."""
        return self.output or _default_folder(self)

    def asked(self) -> dict[str, str]:
        """Return what is asked otherwise than usual, by option; "" for one that has no value.

        Where it is written, and whether it is new, is no part of it.
        """
        source, hosts = self.source, self.hosts
        values: dict[str, object] = {
            "--devices": None
            if self.hardware is not None or hosts is not None
            else _unless(defaults.DEVICES, self.devices),
            "--hardware": self.hardware,
            "--testbed": self.testbed,
            "--costs": self.costs,
            "--candidates": _listed(",", self.candidates),
            "--ratios": _listed(":", self.ratios),
            "--effort": _unless(effort_of(None, 0, quick=self.quick).units, self.effort.units),
            "--seed": _unless(0, self.effort.seed),
            "--batch-size": source.batch_size,
            "--mode": source.mode,
            "--step": source.step,
            "--outputs": _listed(",", source.outputs),
            "--steps": _unless(defaults.STEPS, self.steps),
            "--rounds": self.rounds,
            "--refine": _unless(defaults.REFINE, self.refine),
            "--time-limit": _unless(defaults.TIME_LIMIT_S, source.time_limit_s),
            "--capture-timeout": _unless(defaults.CAPTURE_TIMEOUT_S, source.capture_timeout_s),
            "--": " ".join(redacted_arguments(source.arguments)) or None,
            QUICK: "" if self.quick else None,
            NO_RUN: None if self.run or self.quick else "",
            OPEN_PORTS: "" if self.open_ports else None,
            "--hosts": hosts and hosts.words,
            "--launch": hosts and _unless(defaults.LAUNCH, hosts.launch),
            "--link": hosts and _unless(HostLink.TLS, hosts.link),
        }
        return {option: _text(value) for option, value in values.items() if value is not None}

    def command(self, *, batch_size: int) -> str:
        """Return the command that asks the same at another batch, into a folder of its own name."""
        source = replace(self.source, batch_size=batch_size)
        model = source.path if source.name is None else f"{source.path}:{source.name}"
        asked = replace(self, source=source).asked()
        asked.pop("--", None)
        return _command("analyze", source, model, asked)

    def run_command(self, stand_ins: int | None) -> str:
        """Return the command that runs the script as this analysis tells to.

        ``stand_ins`` is the number of devices, if each is a CPU core: an analysis of those is
        followed only by who asks for them.
        """
        options = {} if self.output is None else {"--placement": str(self.output)}
        if stand_ins is not None:
            options["--devices"] = str(stand_ins)
        return _command("run", self.source, self.source.path, options)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of candidates to try."""
        return self.candidates or (_QUICK_FAMILIES if self.quick else NAMES)


def _command(name: str, source: ModelSource, path: str, options: Mapping[str, str]) -> str:
    """Return a command about a script: with options, their values, and its own arguments."""
    words = ["advisor", name, *([path] if source.module is None else ["-m", source.module])]
    for option, value in options.items():
        words += [option, value] if value else [option]
    if source.arguments:
        words += ["--", *redacted_arguments(source.arguments)]
    return shlex.join(words)


def _unless(usual: T, value: T) -> T | None:
    return None if value == usual else value


def _listed(between: str, values: Iterable[float | str] | None) -> str | None:
    return between.join(map(_text, values or ())) or None


def _text(value: object) -> str:
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def effort_of(units: float | None, seed: int, *, quick: bool) -> Effort:
    """Return how hard to search; None for as hard as usual."""
    if units is None:
        units = defaults.QUICK_EFFORT if quick else defaults.EFFORT
    return Effort(units=units, seed=seed)


def _default_folder(options: AnalyzeOptions) -> Path:
    """Return the folder, relative to the current one, for an analysis that is given none.

    It is named after the model, and after all that was asked by which one analysis has another
    answer than the next: of the step, of the devices, and what was left out. So none takes the
    place of one that it is to be compared with, or that says more. How hard to look, and how often
    to time it, makes the same answer surer; there the newer replaces the older.
    """
    source, hardware = options.source, options.hardware
    arguments = redacted_arguments(source.arguments)
    parts: list[str | None] = [
        source.name,
        source.mode,
        None if source.batch_size is None else f"batch{source.batch_size}",
        source.step,
        *source.outputs,
        f"args-{digest(list(arguments))[:_FEW_CHARS]}" if arguments else None,
    ]
    if options.hosts is not None:
        parts.append(options.hosts.words)
    elif hardware is not None:
        parts.append(Path(hardware).stem if _is_file(hardware) else hardware)
    elif options.devices != defaults.DEVICES:
        parts.append(f"{options.devices}-devices")
    is_run = options.run and options.testbed is not TestbedKind.NONE
    if options.testbed is not None and options.testbed is not TestbedKind.NONE:
        parts.append(options.testbed.value)
    if options.costs is not None:
        parts.append(f"costs-{options.costs.stem}")
    if options.candidates is not None:
        parts.append("+".join(options.candidates))
    if options.ratios is not None:
        parts.append("ratios-" + "-".join(f"{ratio:g}" for ratio in options.ratios))
    if options.quick:
        parts.append("quick")
    elif not is_run and hardware is None:  # For other hardware nothing ever runs.
        parts.append("no-run")
    model = Path(source.path).resolve().stem
    name = "-".join([model, *(_NOT_IN_NAMES.sub("-", part) for part in parts if part)])
    if len(name) > _MOST_CHARS:
        name = f"{name[:_MOST_CHARS]}-{digest([name])}"
    return Path(defaults.OUTPUT) / name


def _is_file(hardware: str) -> bool:
    return hardware.endswith(".toml") or Path(hardware).exists()
