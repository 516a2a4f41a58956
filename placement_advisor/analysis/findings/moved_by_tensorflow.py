"""PA104: TensorFlow runs ops elsewhere than they were put, or would.

Seen in the graphs that were executed, for candidates that ran. Told from the user's own scopes:
ops of one variable that ask for different devices, which TensorFlow moves to the variable; and a
product with its bias on another device, which Grappler's remapper fuses into one op.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.graph.name_patterns import first_names

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op import Op

CODE = "PA104"
NAME = "moved-by-tensorflow"
# A line of a report holds no more names.
MAX_NAMED = 3
_FUSED_BEFORE_BIAS = frozenset({"MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative"})
_BIAS_KIND = "BiasAdd"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what was seen to move, and what the user's scopes will see moved."""
    return (*_seen(evidence), *_torn_from_variables(evidence), *_fused(evidence))


def _seen(evidence: Evidence) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code=CODE,
            name=NAME,
            finding=f"{candidate.name}: TensorFlow moved {len(moved)} ops "
            f"({first_names(moved, MAX_NAMED)})",
            action="put these ops where TensorFlow runs them, or give them kernels where they are "
            "wanted: until then the measurement is one of another placement",
            where={"op": moved[0].partition(": ")[0], "candidate": candidate.name},
            is_hypothetical=evidence.is_hypothetical(candidate.name),
        )
        for candidate in evidence.candidates
        if candidate.measured and (moved := candidate.measured.moved_ops)
    )


def _torn_from_variables(evidence: Evidence) -> tuple[Finding, ...]:
    """Find variables whose ops ask for several devices; all run where the variable is."""
    asking: defaultdict[str, dict[str, Op]] = defaultdict(dict)
    for op in evidence.graph.ops:
        device = evidence.requested_device_of.get(op.name)
        if op.variable is not None and device is not None:
            asking[op.variable].setdefault(device, op)
    return tuple(
        Finding(
            code=CODE,
            name=NAME,
            finding=f"ops that touch variable {variable} ask for {' and '.join(sorted(by_device))}:"
            " TensorFlow runs all of them where the variable is, without a word",
            action="use the variable in one tf.device scope alone, and create it there",
            where=evidence.where(next(reversed(by_device.values())).name),
        )
        for variable, by_device in asking.items()
        if len(by_device) > 1
    )


def _fused(evidence: Evidence) -> tuple[Finding, ...]:
    """Find products with one reader, a bias that is to be added on another device."""
    asked, graph = evidence.requested_device_of, evidence.graph
    pairs = []
    for op in graph.ops:
        if op.kind != _BIAS_KIND or op.name not in asked:
            continue
        product = next((e.producer for e in graph.inputs_of(op.name) if not e.is_control), op.name)
        apart = asked.get(product) not in (None, asked[op.name])
        readers = [edge for edge in graph.outputs_of(product) if not edge.is_control]
        if apart and graph.op(product).kind in _FUSED_BEFORE_BIAS and len(readers) == 1:
            pairs.append((product, op.name))
    if not pairs:
        return ()
    product, bias = pairs[0]
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"{len(pairs)} products have their bias on another device ({product} on "
            f"{asked[product]}, {bias} on {asked[bias]}): Grappler fuses such pairs into one op",
            action="keep a product and its bias in one tf.device scope, or switch the remapper off "
            'with tf.config.optimizer.set_experimental_options({"remapping": False})',
            where=evidence.where(bias, device=asked[bias]),
        ),
    )
