"""Answers about one step: what `advisor trace` finds in it, where its time goes by `profile`.

Sizes are integer bytes, work is per step. Left out: the ops, which are in the graph file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import MaxLen

from placement_advisor import __version__
from placement_advisor.files import contract
from placement_advisor.graph.graph_summary import ControlFlow, GraphSummary, Kind, LargeTensor
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.graph.layer_structure import Join, ParallelBranches, RepeatedBlocks
from placement_advisor.graph.op import Role, Total
from placement_advisor.graph.slow_patterns import HostKind
from placement_advisor.measurement.measurement import Activity
from placement_advisor.profile.device_trace import DeviceUse, Wait
from placement_advisor.profile.totals import ByHost, RoutePerStep, XprofOverview

if TYPE_CHECKING:
    from placement_advisor.profile import totals
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
            traced,
            advisor_version=__version__,
            model=contract.like(Model, traced, path=model_path, left_out=traced.left_out.told()),
            graph_file=graph_file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a device did, by use: copies to and from peers and hosts, within it, collectives."""

    compute_ns: contract.Ns
    """Kernels and memsets."""
    peer_ns: contract.Ns
    """Copies between devices."""
    peer_exposed_ns: contract.Ns | None
    host_ns: contract.Ns
    """Copies to and from the host."""
    host_exposed_ns: contract.Ns | None
    within_ns: contract.Ns
    """Copies within the card."""
    within_exposed_ns: contract.Ns | None
    collective_ns: contract.Ns
    collective_exposed_ns: contract.Ns | None
    unclassified_ns: contract.Ns
    """Copies of unknown kind."""
    unclassified_exposed_ns: contract.Ns | None
    idle_ns: contract.Ns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device."""

    name: contract.Text
    in_all: Amounts
    per_step: Amounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """All copies of a sort from one device to another."""

    source: contract.Text
    """Device, `host` or `unknown`."""
    target: contract.Text
    """Likewise."""
    kind: contract.Text
    """In the words of nvprof."""
    count: contract.Count
    of_unknown_size: contract.Count
    size_bytes: contract.Count
    """Of known size."""
    time_ns: contract.Ns
    """At least one is under way."""
    exposed_ns: contract.Ns
    bytes_per_s: contract.NotNegative | None
    """None unless all sizes are known."""
    per_step: RoutePerStep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Copies of a tensor on one route."""

    tensor: contract.Text
    """As TensorFlow names the edge."""
    source: contract.Text
    """Device, `host` or `unknown`."""
    target: contract.Text
    """Likewise."""
    kind: contract.Text
    """In the words of nvprof."""
    count: contract.Count
    of_unknown_size: contract.Count
    size_bytes: contract.Count
    """Of known size."""
    time_ns: contract.Ns
    """Sum over all copies."""
    exposed_ns: contract.Ns
    """Shared by simultaneous copies."""
    op: contract.Text | None
    """None without a graph that has it."""
    layer: contract.Text | None
    tensor_bytes: contract.Count | None
    """Size of one copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of devices went in a recorded profile."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    path: contract.Text
    format: Literal[
        "TensorFlow profile (XSpace)",
        "Chrome trace (TensorBoard's trace viewer)",
        "PyTorch trace (Kineto)",
        "Chrome trace",
        "nvprof summary",
        "nvprof GPU trace",
        "Nsight Systems summary",
        "Nsight Systems GPU trace",
    ]
    steps_from: contract.Text
    """`group_id`, `step marks` or `none`."""
    step_ns: contract.Rows[contract.Ns]
    """Of the steps that count."""
    warm_up_steps: contract.Count
    """Medians leave them out."""
    span_ns: contract.Ns | None
    """From the first to the last event."""
    unclassified_share: contract.NotNegative
    """Of busy time."""
    devices: contract.Rows[Device]
    routes: contract.Rows[Route]
    """Over all of the profile."""
    by_host: contract.Rows[ByHost]
    """By way of the host."""
    tensors: contract.Rows[Tensor]
    """Longest waits first."""
    activities: contract.Rows[Activity]
    """Longest first."""
    waits: contract.Rows[Wait]
    """In the steps that count."""
    explained_shares: contract.ByName[float]
    """Share of its steps with a known cause."""
    xprof: XprofOverview | None
    """None without an answer."""
    notes: contract.Rows[contract.Text]

    @classmethod
    def of(cls, read: totals.ReadProfile) -> Profile:
        """Return it as it is published."""
        profile = read.totals
        return contract.like(
            cls,
            profile,
            read,
            advisor_version=__version__,
            format=read.form,
            devices=map(_device, profile.devices),
            routes=[contract.like(Route, each, each.route) for each in profile.routes],
            tensors=[contract.like(Tensor, each, each.route) for each in profile.tensors],
            notes=(*([] if read.which is None else [read.which]), *profile.notes),
        )


def _device(device: totals.DeviceTotals) -> Device:
    per_step = device.per_step
    return Device(
        name=device.device,
        in_all=_amounts(device.total, device.idle_ns),
        per_step=None if per_step is None else _amounts(per_step, device.idle_per_step_ns),
    )


def _amounts(amounts: Mapping[DeviceUse, totals.TimeTotals], idle_ns: int | None) -> Amounts:
    told: dict[str, Any] = {"idle_ns": idle_ns}
    for use, amount in amounts.items():
        told[f"{use.name.lower()}_ns"] = amount.time_ns
        if use.name != "COMPUTE":
            told[f"{use.name.lower()}_exposed_ns"] = amount.exposed_ns
    return Amounts(**told)
