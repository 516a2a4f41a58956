"""What `advisor trace` answers: the summary of a traced step.

Sizes are integer bytes, work is per step. Left out: the ops themselves, which are in the graph
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import StringConstraints

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    Count,
    Positive,
    Rows,
    Share,
    Text,
    like,
)
from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.graph.graph_summary import GraphSummary
    from placement_advisor.graph.op import Total
    from placement_advisor.tf.answers import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was traced."""

    path: Text
    """Model file as the user gave it."""
    name: Text
    """Name of the model or of the step."""
    mode: Literal["train", "infer"]
    """Training step or inference."""
    chosen: Text
    """What was taken from the file and where its batches come from, in words."""
    batch_size: Positive | None
    """Samples per step; None if the inputs carry no batch."""
    left_out: Rows[Text]
    """What of the user's program the step is without: such as jit_compile, eager execution,
    summaries. In words, with the reason or what is done instead.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum of parts, some of which may be unknown."""

    amount: Count | None
    """Sum of the parts that are known, in the unit of the field's name; None if there are parts and
    none is known.
    """
    parts: Count
    """Values that belong to the sum."""
    unknown: Count
    """How many of them are not known, so missing from the amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor."""

    op: Text
    """Op that makes it."""
    port: Count
    """Output of that op, from 0."""
    kind: Text
    """TensorFlow's op type, such as `MatMul`."""
    role: Role
    """What the op does in the step."""
    layer: Text | None
    """Layer of the op; None if it has none."""
    size_bytes: Count
    """Size of the tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Ops of a kind, and what of the work is theirs."""

    kind: Text
    """TensorFlow's op type."""
    ops: Positive
    """Number of ops."""
    flops: Sum
    flops_share: Share | None
    """Share of the step's known flops; None if those of the kind are unknown, or the step has none.
    """
    bytes_accessed: Sum
    bytes_accessed_share: Share | None
    """Share of the step's known bytes accessed; None as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Where towers meet."""

    layer: Text
    """Layer in which they meet."""
    towers: Annotated[Rows[Annotated[Rows[Text], MinLen(1)]], MinLen(2)]
    """Towers, each the list of its layers in order; none depends on another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Branches that could run at once."""

    fork: Text
    """Layer that feeds several."""
    join: Text
    """First layer that all ways go through."""
    branches: Annotated[Rows[Annotated[Rows[Text], MinLen(1)]], MinLen(1)]
    """Branches, each the list of its layers in order."""
    direct: bool
    """Whether the fork also feeds the join with no layer between, as in a residual unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks that are alike, one behind the other."""

    blocks: Annotated[Rows[Annotated[Rows[Text], MinLen(1)]], MinLen(2)]
    """Alike blocks, each the list of its layers, fed by the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """Ops of a kind that GPUs have no kernel for."""

    kind: Text
    """TensorFlow's op type."""
    ops: Positive
    """Number of ops."""
    layers: Rows[Text]
    """Their layers."""
    bound_ops: Count
    """Ops with a GPU kernel that stay on the host all the same, because they share a variable or
    table with such an op.
    """
    crossing_bytes: Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlow:
    """A loop or a conditional."""

    op: Text
    """Name of the op."""
    kind: Literal["While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"]
    """TensorFlow's op type. `While` and `StatelessWhile` are loops, the others branches."""
    role: Role
    """What the op does in the step."""
    layer: Text | None
    """Layer of the op; None if it has none."""
    trips: Count | None
    """Turns of a loop; None if they are not known, or for a branch."""
    flops_share: Share | None
    """Share of the step's known flops, all turns counted; None if unknown."""
    bytes_accessed_share: Share | None
    """Share of the step's known bytes accessed; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one traced step holds."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that traced the model."""
    tensorflow_version: Text
    """Version of TensorFlow that traced the model."""
    model: Model
    graph_file: Text
    """Graph file that was written, as the user gave it."""
    graph_fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    """Hash of the op graph; placement files name the graph that they fit by it."""
    ops: Count
    """Ops in the step; a loop or branch counts as one."""
    ops_by_role: Mapping[Role, Positive]
    """Ops by what they do in the step; only roles that any op has."""
    layers: Count
    """Layers, one for each call."""
    ops_with_layer_share: Share
    """Share of the ops that compute (forward, backward, update) whose layer is known."""
    edge_bytes: Sum
    control_edges: Count
    """Edges that only order their ends."""
    parameter_bytes: Sum
    state_bytes: Sum
    constant_bytes: Sum
    trains: bool
    """Whether there is a backward pass."""
    activation_bytes: Sum
    largest_tensors: Annotated[Rows[Tensor], MaxLen(20)]
    """The 20 largest tensors of known size, largest first; constants, variables and buffers that an
    op only hands on are left out.
    """
    flops: Sum
    bytes_accessed: Sum
    flops_known_bytes_share: Share | None
    """Share of the known `bytes_accessed` that lies in ops of known flops; None if none are known,
    or if an op of unknown flops has unknown bytes as well.
    """
    kinds: Rows[Kind]
    """Work by TensorFlow's op type, the kind with the larger of its two shares first."""
    joins: Rows[Join]
    """Layers in which towers meet, in layer order."""
    parallel_branches: Rows[Branches]
    """Forks whose ways meet again, in layer order; they may nest."""
    repeated_blocks: Rows[Blocks]
    """Groups of layers that repeat, in layer order."""
    host_only: Rows[HostKind]
    """Kinds that TensorFlow has no GPU kernel for, those first that most bytes go to or come from;
    inputs and constants left out.
    """
    control_flow: Rows[ControlFlow]
    """Loops and branches, heaviest first."""

    @classmethod
    def of(
        cls, traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str
    ) -> Trace:
        """Return it as it is published."""
        return like(
            cls,
            summary,
            schema_version=1,
            advisor_version=__version__,
            tensorflow_version=traced.tensorflow_version,
            model=like(Model, traced, path=model_path, left_out=tuple(traced.left_out.told())),
            graph_file=graph_file,
            graph_fingerprint=summary.fingerprint,
            edge_bytes=_sum(summary.data_edges),
            parameter_bytes=_sum(summary.parameters),
            state_bytes=_sum(summary.state),
            constant_bytes=_sum(summary.constants),
            activation_bytes=_sum(summary.activations),
            largest_tensors=tuple(like(Tensor, each) for each in summary.largest_tensors),
            flops=_sum(summary.flops),
            bytes_accessed=_sum(summary.bytes_accessed),
            kinds=tuple(
                like(
                    Kind,
                    kind,
                    flops=_sum(kind.flops),
                    bytes_accessed=_sum(kind.bytes_accessed),
                    bytes_accessed_share=kind.bytes_share,
                )
                for kind in summary.kinds
            ),
            joins=tuple(like(Join, join, towers=_groups(join.towers)) for join in summary.joins),
            parallel_branches=tuple(
                like(Branches, region, branches=_groups(region.branches))
                for region in summary.branches
            ),
            repeated_blocks=tuple(
                Blocks(blocks=_groups(repeat.blocks)) for repeat in summary.repeats
            ),
            host_only=tuple(
                like(HostKind, kind, layers=tuple(kind.layers), crossing_bytes=_sum(kind.crossing))
                for kind in summary.host_only
            ),
            control_flow=tuple(
                like(ControlFlow, op, bytes_accessed_share=op.bytes_share)
                for op in summary.control_flow
            ),
        )


def _sum(total: Total) -> Sum:
    return like(Sum, total)


def _groups(groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, groups))
