"""How many kernels are left of a training step that XLA compiles, beside what PA306 takes for it.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/xla_fusions.py MODEL.py…

XLA's own compiler makes the kernels, the one for CPUs, since there is no GPU. Counted are what its
program runs one after the other, fusions and others, without constants, parameters and tuples; and
of ours, the ops that compute once elementwise trees are one. Where XLA is left with fewer, PA306
promises no more than it does.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.graph.op import COMPUTING_ROLES
from placement_advisor.graph.op_patterns import with_trees_as_one
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import tracer

if TYPE_CHECKING:
    from placement_advisor.tf.load.loaded_step import LoadedStep

# What costs nothing: names of values, and views of them.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    for path in parser.parse_args().models:
        tracer.load_workload(ModelSource(path=path, mode="train"))
        graph = tracer.trace_workload(path, None).graph
        before, after = (_computing(each) for each in (graph, with_trees_as_one(graph)))
        theirs = _kernels(tracer.loaded_workload())
        print(f"{path}: {before} ops compute, {after} with trees as one; XLA has {theirs.total()}")
        print(f"    {', '.join(f'{kind} {count}' for kind, count in theirs.most_common(8))}")


def _computing(graph: Any) -> int:
    return sum(op.role in COMPUTING_ROLES for op in graph.ops)


def _kernels(loaded: LoadedStep) -> Counter[str]:
    """Return what XLA's program runs, by kind."""
    step = tf.function(loaded.step, jit_compile=True)
    data = tf.nest.map_structure(tf.constant, loaded.batches[0])
    program = step.experimental_get_compiler_ir(data)(stage="optimized_hlo")
    entry = program[program.index("\nENTRY") :]
    kinds = re.findall(r"^\s+(?:ROOT )?%?\S+ = .*? ([a-z][a-z\-]*)\(", entry, re.MULTILINE)
    return Counter(kind for kind in kinds if kind not in _FREE)


if __name__ == "__main__":
    main()
