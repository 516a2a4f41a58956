"""The summary of a traced step as the public contract of ``advisor trace --json``.

Sizes are integer bytes, work is per step. Null means not known, or does not apply. Left out: the
ops themselves, which are in the graph file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.graph.graph_summary import (
        ControlFlow,
        GraphSummary,
        KindWork,
        LargeTensor,
    )
    from placement_advisor.graph.host_ops import HostKind
    from placement_advisor.graph.partial_sums import Total
    from placement_advisor.tf.answers import Traced

SCHEMA_VERSION = 1


def trace_as_json(
    traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str
) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("trace")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "tensorflow_version": traced.tensorflow_version,
        "model": {
            "path": model_path,
            "name": traced.name,
            "mode": traced.mode,
            "chosen": traced.chosen,
            "batch_size": traced.batch_size,
            "left_out": list(traced.left_out.told()),
        },
        "graph_file": graph_file,
        "graph_fingerprint": summary.fingerprint,
        **_sizes(summary),
        **_work(summary),
        **_structure(summary),
        "host_only": [_host_kind(kind) for kind in summary.host_only],
        "control_flow": [_control_flow(op) for op in summary.control_flow],
    }


def _sizes(summary: GraphSummary) -> dict[str, Any]:
    return {
        "ops": summary.ops,
        "ops_by_role": {role.value: count for role, count in summary.ops_by_role.items()},
        "layers": summary.layers,
        "ops_with_layer_share": summary.ops_with_layer_share,
        "edge_bytes": _sum(summary.data_edges),
        "control_edges": summary.control_edges,
        "parameter_bytes": _sum(summary.parameters),
        "state_bytes": _sum(summary.state),
        "constant_bytes": _sum(summary.constants),
        "trains": summary.trains,
        "activation_bytes": _sum(summary.activations),
        "largest_tensors": [_tensor(tensor) for tensor in summary.largest_tensors],
    }


def _work(summary: GraphSummary) -> dict[str, Any]:
    return {
        "flops": _sum(summary.flops),
        "bytes_accessed": _sum(summary.bytes_accessed),
        "flops_known_bytes_share": summary.flops_known_bytes_share,
        "kinds": [_kind(kind) for kind in summary.kinds],
    }


def _structure(summary: GraphSummary) -> dict[str, Any]:
    return {
        "joins": [{"layer": join.layer, "towers": _lists(join.towers)} for join in summary.joins],
        "parallel_branches": [
            {
                "fork": region.fork,
                "join": region.join,
                "branches": _lists(region.branches),
                "direct": region.direct,
            }
            for region in summary.branches
        ],
        "repeated_blocks": [{"blocks": _lists(repeat.blocks)} for repeat in summary.repeats],
    }


def _sum(total: Total) -> dict[str, Any]:
    return {"amount": total.amount, "parts": total.parts, "unknown": total.unknown}


def _lists(groups: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(group) for group in groups]


def _tensor(tensor: LargeTensor) -> dict[str, Any]:
    return {
        "op": tensor.op,
        "port": tensor.port,
        "kind": tensor.kind,
        "role": tensor.role.value,
        "layer": tensor.layer,
        "size_bytes": tensor.size_bytes,
    }


def _kind(kind: KindWork) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "ops": kind.ops,
        "flops": _sum(kind.flops),
        "flops_share": kind.flops_share,
        "bytes_accessed": _sum(kind.bytes_accessed),
        "bytes_accessed_share": kind.bytes_share,
    }


def _host_kind(kind: HostKind) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "ops": kind.ops,
        "layers": list(kind.layers),
        "bound_ops": kind.bound_ops,
        "crossing_bytes": _sum(kind.crossing),
    }


def _control_flow(op: ControlFlow) -> dict[str, Any]:
    return {
        "op": op.op,
        "kind": op.kind,
        "role": op.role.value,
        "layer": op.layer,
        "trips": op.trips,
        "flops_share": op.flops_share,
        "bytes_accessed_share": op.bytes_share,
    }
