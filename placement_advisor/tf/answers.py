"""The values that children answer with. Free of TensorFlow: the command's process reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.graph.op import UPDATE_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import OpGraph, TracedAs
    from placement_advisor.profile.worker_steps import PlannedCopy


AUTO_JIT, MIXED_PRECISION = "tf.config.optimizer.set_jit", "auto_mixed_precision"
# Ops that call a function of Python, which only the process can do that has traced it.
PYTHON_CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


class SourceLine(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int

    @property
    def name(self) -> str:
        """What ``--step`` calls it: ``train.py:14``."""
        return f"{PurePath(self.file).name}:{self.line}"


class CapturedCall(NamedTuple):
    """The call of a script's step, by which a second run of the script finds it again.

    ``call`` is what the user calls: ``model.fit``, or a function's name. ``structure`` is that of a
    model's batch: True stands for a tensor. One that another run cannot find is not to ``repeat``.
    ``is_replica``: the script has made a strategy, and would run several of it.
    """

    call: str
    where: SourceLine | None = None
    structure: Any = None
    repeat: bool = False
    is_replica: bool = False

    @property
    def name(self) -> str:
        """What ``--step`` calls it."""
        return self.call if self.where is None else self.where.name


class DroppedScope(NamedTuple):
    """A `tf.device` scope around layers of a functional model, which Keras has forgotten.

    ``layers`` are in the step, and none of their ops asks for ``device``. ``line`` is that of the
    scope, None where it cannot be told.
    """

    device: str
    layers: tuple[str, ...]
    line: SourceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Parts of the user's program that the analysed step leaves out.

    ``jit_compile``: XLA compiles the step, or functions in it. ``run_eagerly``: it is no graph.
    ``steps_per_call`` is Keras' ``steps_per_execution``. ``method`` is one of a Keras model's that
    is the user's own and is not called. ``summaries`` counts the ops that write summaries.
    ``devices``: a frozen graph says where its ops run. ``settings`` are calls of `tf.config`, and
    options of TensorFlow's graph optimizer, that hold for the user's own process alone.
    """

    jit_compile: bool = False
    run_eagerly: bool = False
    steps_per_call: int = 1
    method: str | None = None
    summaries: int = 0
    devices: bool = False
    settings: tuple[str, ...] = ()

    @property
    def has_xla(self) -> bool:
        """Whether XLA compiles some of the user's program."""
        return self.jit_compile or AUTO_JIT in self.settings

    def told(self) -> tuple[str, ...]:
        """Describe each part in words, with the reason or what is done instead."""
        steps = self.steps_per_call
        parts = {
            "jit_compile=True (XLA ignores devices within a step)": self.jit_compile,
            "eager execution (the step is traced as a graph)": self.run_eagerly,
            f"steps_per_execution={steps} (each step is a call)": steps != 1,
            f"your own {self.method}": self.method is not None,
            "summaries": self.summaries,
            "the devices written into the graph": self.devices,
            f"your settings of {', '.join(self.settings)}": self.settings,
        }
        return tuple(part for part, is_left_out in parts.items() if is_left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A traced model, as the command's process knows it; the bundle itself stays on disk.

    ``traced_as`` is None for a step that nobody traced. ``members`` names the ops that run within
    each loop or conditional of the graph.
    ``requested_device_of`` has the device that `tf.device` scopes ask for, as ``GPU:1``, for the
    ops within such scopes (the user's own, and those of Keras around lookups of texts) and for the
    variables that were created within them; ``scope_of`` has the line of the user's own scope,
    where it can be told. ``stack_of`` has the lines of the user's code that led to an op, innermost
    first, where there are any; ``created_at`` those that led to the creation of a variable.
    ``dropped_scopes`` are scopes of theirs that no op of the step stands in.
    ``created`` has the place of each variable among all that were created, in order,
    where that was seen. ``takes_batch_size``: the model can be loaded with another batch.
    ``captured`` is the call of a script that ran. ``is_made_up``: it has no batch of its own.
    ``printed`` is the end of what the script printed.
    ``left_out`` has the parts of the user's program that the graph has not. ``python_call`` is the
    first op that calls Python, with the user's line, in words; None if there is none.
    """

    graph: OpGraph
    members: Mapping[str, frozenset[str]]
    name: str
    mode: str
    chosen: str
    batch_size: int | None
    tensorflow_version: str
    takes_batch_size: bool = True
    captured: CapturedCall | None = None
    is_made_up: bool = False
    printed: str = ""
    traced_as: TracedAs | None = None
    requested_device_of: Mapping[str, str] = field(default_factory=dict)
    scope_of: Mapping[str, SourceLine] = field(default_factory=dict)
    stack_of: Mapping[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    dropped_scopes: tuple[DroppedScope, ...] = ()
    created: Mapping[str, int] = field(default_factory=dict)
    created_at: Mapping[str, tuple[SourceLine, ...]] = field(default_factory=dict)
    left_out: LeftOut = LeftOut()
    python_call: str | None = None

    @property
    def line_of(self) -> dict[str, SourceLine]:
        """Return the innermost line of the user's code that made an op, where there is one."""
        return {name: lines[0] for name, lines in self.stack_of.items()}

    def update_lines(self) -> dict[str, SourceLine]:
        """Return the line that updates each variable, where the user's code has one."""
        return {
            op.variable: self.stack_of[op.name][0]
            for op in self.graph.ops
            if op.variable is not None
            and op.kind.startswith(UPDATE_KINDS)
            and op.name in self.stack_of
        }


class OwnSteps(NamedTuple):
    """Times of steps in the process that has loaded them: the first ones, and those that count."""

    warmup_ns: tuple[int, ...]
    step_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedShare:
    """A step at a share of its batch: its op graph, and the ops within its loops."""

    graph: OpGraph
    members: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSplit:
    """A step whose batch is split: its op graphs, and the steps that they were put together from.

    ``graphs`` go by the family of their placements, that of a mirrored step only where the shares
    are even. Those in ``weak`` have as large a batch on every device as the unsplit step has: the
    graphs to tell weak scaling by, if that was asked for.

    ``samples`` are those of each replica, ``shares`` the traces by number of samples. ``own`` are
    ops of the unsplit step that compute something of a replica's own: random numbers, or statistics
    of its samples. If there are any, it need not compute what the unsplit step does. It ``draws``
    if some of them are random numbers. ``statistics`` are variables that only keep statistics of
    the batch.
    """

    graphs: Mapping[str, SplitGraph]
    weak: Mapping[str, SplitGraph]
    samples: tuple[int, ...]
    shares: Mapping[int, TracedShare]
    own: tuple[str, ...]
    draws: bool = False
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A candidate that is ready to run: what moved, and which tensors cross.

    ``exchanged_bytes`` has the collective ops that every step runs, with what one sends on from a
    device, None where that is not known; those within conditionals and loops are not among them.
    ``unexchanged`` are variables of a mirrored step that each device updates from its own samples
    alone.
    """

    moved_ops: tuple[str, ...]
    crossings: tuple[PlannedCopy, ...]
    exchanged_bytes: Mapping[str, int | None] = field(default_factory=dict)
    unexchanged: tuple[str, ...] = ()
