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
from placement_advisor.graph.graph_summary import ControlFlow, Kind, LargeTensor
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.graph.layer_structure import Join, ParallelBranches, RepeatedBlocks
from placement_advisor.graph.op import Role, Total
from placement_advisor.graph.op_patterns import HostKind

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
    edge_bytes: Total
    control_edges: contract.Count
    """They only order ops."""
    parameter_bytes: Total
    state_bytes: Total
    constant_bytes: Total
    trains: bool
    activation_bytes: Total
    largest_tensors: Annotated[contract.Rows[LargeTensor], MaxLen(20)]
    """Largest first, without constants and variables."""
    flops: Total
    bytes_accessed: Total
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
        )
