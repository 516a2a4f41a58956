"""Costs from a profile that was recorded elsewhere, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorded_profiles import gpu, host, kernel, mark, write

from placement_advisor.analysis.target_costs import TargetHardware
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.tf.answers import Traced

if TYPE_CHECKING:
    from pathlib import Path


def graph_of(size_bytes: int) -> OpGraph:
    kinds = frozenset({"CPU", "GPU"})
    return OpGraph(
        [Op(name="product", kind="MatMul", output_bytes=(size_bytes,), device_kinds=kinds)], []
    )


def notes_of(logdir: Path, graph: OpGraph) -> tuple[str, ...]:
    traced = Traced(
        graph=graph,
        members={},
        name="m",
        mode="train",
        chosen="",
        batch_size=32,
        tensorflow_version="",
    )
    recorded = read_recorded(logdir)
    elsewhere = TargetHardware(label="2xV100", cluster=read_hardware("2xV100"), recorded=recorded)
    return elsewhere.prices(traced).notes


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    steps = [mark(step, 1_000 * step, 1_000 * step + 900) for step in range(1, 4)]
    kernels = [kernel("product:MatMul", 1_000 * s + 10, 1_000 * s + 500) for s in range(1, 4)]
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    write(folder / "vm.xplane.pb", host(steps), gpu(0, kernels))
    return tmp_path


def test_times_of_another_step_than_the_recorded_one_are_told(logdir: Path) -> None:
    assert len(notes_of(logdir, graph_of(64))) == 1
    graph_of(64).save(logdir / "graph.json.gz")
    assert len(notes_of(logdir, graph_of(64))) == 1
    another, _ = notes_of(logdir, graph_of(32))
    assert another.startswith("--costs: graph.json.gz in ")
    assert " is the graph of another step than this one at a batch of 32: " in another
    assert "--batch-size" in another


def test_a_variable_of_another_name_is_no_other_step(logdir: Path) -> None:
    """As Keras names those of metrics: `total` until a fit has begun, then `mean_error/total`."""

    def with_metric(name: str) -> OpGraph:
        handle = Op(name=name, kind="VarHandleOp", role=Role.VARIABLE, variable=name)
        read = Op(name="read", kind="ReadVariableOp", variable=name, output_bytes=(4,))
        return OpGraph([*graph_of(64).ops, handle, read], [])

    with_metric("mean_error/total").save(logdir / "graph.json.gz")
    assert len(notes_of(logdir, with_metric("total"))) == 1
