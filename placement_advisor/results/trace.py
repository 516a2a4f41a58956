"""What `advisor trace` answers: the summary of a traced step.

Sizes are integer bytes, work is per step. Left out: the ops themselves, which are in the graph
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import MaxLen

from placement_advisor import __version__
from placement_advisor.files import contract
from placement_advisor.graph.graph_summary import LargeTensor
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.graph.layer_structure import Join, ParallelBranches, RepeatedBlocks
from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from placement_advisor.graph.graph_summary import GraphSummary
    from placement_advisor.tf.answers import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was traced."""

    path: contract.Text
    name: contract.Text
    mode: Literal["train", "infer"]
    chosen: contract.Text
    """What was traced and feeds it."""
    batch_size: contract.Positive | None
    """None if inputs have none."""
    left_out: contract.Rows[contract.Text]
    """What the step leaves out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum of parts, some of which may be unknown."""

    amount: contract.Count | None
    """Of known parts."""
    parts: contract.Count
    unknown: contract.Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Ops of a kind, and what of the work is theirs."""

    kind: contract.Text
    """Type of the op."""
    ops: contract.Positive
    flops: Sum
    flops_share: contract.Share | None
    """Of all known flops."""
    bytes_accessed: Sum
    bytes_accessed_share: contract.Share | None
    """Of all known bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """Ops of a kind that GPUs have no kernel for."""

    kind: contract.Text
    """Type of the op."""
    ops: contract.Positive
    layers: contract.Rows[contract.Text]
    bound_ops: contract.Count
    """Kept there by shared variables."""
    crossing_bytes: Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlow:
    """A loop or a conditional."""

    op: contract.Text
    kind: Literal["While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"]
    """Type of the op."""
    role: Role
    layer: contract.Text | None
    trips: contract.Count | None
    """None if unknown, or for a conditional."""
    flops_share: contract.Share | None
    """Of all its turns."""
    bytes_accessed_share: contract.Share | None
    """Of all its turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one traced step holds."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    tensorflow_version: contract.Text
    model: Model
    graph_file: contract.Text
    graph_fingerprint: Fingerprint
    """Placement files have it, too."""
    ops: contract.Count
    """A loop or conditional counts as one."""
    ops_by_role: Mapping[Role, contract.Positive]
    layers: contract.Count
    """One for each call."""
    ops_with_layer_share: contract.Share
    """Of forward, backward, update ops."""
    edge_bytes: Sum
    control_edges: contract.Count
    """They only order ops."""
    parameter_bytes: Sum
    state_bytes: Sum
    constant_bytes: Sum
    trains: bool
    activation_bytes: Sum
    largest_tensors: Annotated[contract.Rows[LargeTensor], MaxLen(20)]
    """Largest first, without constants and variables."""
    flops: Sum
    bytes_accessed: Sum
    flops_known_bytes_share: contract.Share | None
    """Accessed by ops of known flops."""
    kinds: contract.Rows[Kind]
    """Heaviest first."""
    joins: contract.Rows[Join]
    """In layer order."""
    parallel_branches: contract.Rows[ParallelBranches]
    """In layer order; may nest."""
    repeated_blocks: contract.Rows[RepeatedBlocks]
    """In layer order."""
    host_only: contract.Rows[HostKind]
    """Ops without a GPU kernel, most bytes first."""
    control_flow: contract.Rows[ControlFlow]
    """Heaviest first."""

    @classmethod
    def of(
        cls, traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str
    ) -> Trace:
        """Return it as it is published."""
        return contract.like(
            cls,
            summary,
            schema_version=1,
            advisor_version=__version__,
            tensorflow_version=traced.tensorflow_version,
            model=contract.like(Model, traced, path=model_path, left_out=traced.left_out.told()),
            graph_file=graph_file,
            graph_fingerprint=summary.fingerprint,
            edge_bytes=summary.data_edges,
            parameter_bytes=summary.parameters,
            state_bytes=summary.state,
            constant_bytes=summary.constants,
            activation_bytes=summary.activations,
            kinds=[
                contract.like(Kind, kind, bytes_accessed_share=kind.bytes_share)
                for kind in summary.kinds
            ],
            parallel_branches=summary.branches,
            repeated_blocks=summary.repeats,
            host_only=[
                contract.like(HostKind, kind, crossing_bytes=kind.crossing)
                for kind in summary.host_only
            ],
            control_flow=[
                contract.like(ControlFlow, op, bytes_accessed_share=op.bytes_share)
                for op in summary.control_flow
            ],
        )
