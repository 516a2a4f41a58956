"""What is told of the errors of simulations by assumed costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest
import sample_analysis
from op_graphs import op

from placement_advisor.cost.gpu.assumed_times import AssumedTimes, times_by_gpu
from placement_advisor.cost.gpu.kernel_times import OPS, KernelBasis, kernel_errors
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_work.kernels import Kernel, KernelFamily
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import read_hardware
from placement_advisor.report.analysis_report import full_text, render_markdown
from placement_advisor.report.statements import (
    FAMILY_WORDS,
    MEDIAN_OF,
    MODELS,
    expected_error,
)
from placement_advisor.results.analysis import PUBLISHED_STEPS, GpuTimes
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.analysis_result import Analysis

TOLD = "Expect errors"
PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "gpus.md").read_text(encoding="utf-8")


def told(*times: AssumedTimes) -> str:
    found = expected_error((), map(GpuTimes.of, times), stand_in=False)
    assert found is not None
    return found


def test_candidates_whose_errors_are_known_are_told_with_them() -> None:
    told = expected_error(["single", "alternating", "own"], (), stand_in=True)
    assert told is not None
    assert f"on {MODELS} models" in told
    assert f"alternating {format_share(MEDIAN_OF['alternating'])}" in told
    assert "towers" not in told
    assert "own" not in told


@pytest.mark.parametrize("report", [full_text, render_markdown])
def test_it_is_told_where_costs_were_assumed_and_nowhere_else(
    report: Callable[[Analysis], str],
) -> None:
    unmeasured = sample_analysis.unmeasured()
    assert f"{TOLD}: on {MODELS} models" in report(unmeasured)
    assert f"{TOLD}: {PUBLISHED_STEPS.count} published" in report(sample_analysis.elsewhere())
    assert TOLD not in report(sample_analysis.sample())
    elsewhere = replace(unmeasured.testbed, stand_in=False)
    assert TOLD not in report(replace(unmeasured, testbed=elsewhere))


def test_times_on_gpus_are_told_with_what_they_rest_on() -> None:
    ours = sample_analysis.TIMES
    assert told(ours) == (
        "Expect errors: 9 published training steps on one GPU were predicted 12 % off in the mean, "
        "27 % at worst. Of the time of ops on V100-SXM2, 20 % is that of launches, 32 % rests on "
        "kernels without a record, 10 % on peaks alone, 38 % on kernels measured on this chip (off "
        "in the mean: convolutions 15 %, elementwise under 1 %)."
    )
    transferred = tuple(replace(each, basis=KernelBasis.TRANSFERRED) for each in ours.families)
    both = told(ours, replace(ours, gpu="A10", families=transferred))
    assert "on V100-SXM2" in both
    assert "38 % on kernels measured on other chips" in both.split("on A10")[1]
    bare = replace(ours, families=(), assumed_share=0.0, roofline_share=1.0)
    assert told(bare).endswith("0 % rests on kernels without a record, 100 % on peaks alone.")


def test_shares_are_those_of_the_time_of_ops_on_each_sort_of_gpu() -> None:
    kernels = {
        "product": (Kernel(KernelFamily.LINEAR, (1, 8, 8, 8)), CostBasis.KERNEL),
        "gradient": (Kernel(KernelFamily.CONV_BY_INPUT, (1,) * 10), CostBasis.KERNEL_ASSUMED),
        "gather": (None, CostBasis.ROOFLINE),
        "loop": (None, CostBasis.GUESSED),
    }
    graph = OpGraph([op(name)._replace(kernel=kernel) for name, (kernel, _) in kernels.items()], [])
    times_ns = dict(zip(kernels, (40_000, 30_000, 12_000, 6_000), strict=True))
    table = CostTable(
        costs={
            name: OpCost(time_ns=times_ns[name], basis=basis)
            for name, (_, basis) in kernels.items()
        }
    )
    cluster = read_hardware("2xV100+T4")
    v100, t4 = times_by_gpu(graph, table.everywhere(cluster), cluster)
    assert (v100.gpu, t4.gpu) == ("V100-SXM2", "T4")
    (product,) = v100.families
    # And four launches of 3 µs.
    assert (product.family, product.basis, product.share) == ("linear", KernelBasis.FITTED, 0.4)
    assert (v100.launch_share, v100.assumed_share, v100.roofline_share) == (0.12, 0.3, 0.18)
    tables = CostTable(costs={}).everywhere(cluster)
    times, _ = times_by_gpu(OpGraph([], []), tables, cluster)
    assert (times.launch_share, times.assumed_share, times.roofline_share) == (0, 0, 0)


def test_every_family_of_the_record_has_words() -> None:
    assert set(FAMILY_WORDS) == set(OPS)


@pytest.mark.parametrize(
    ("word", "family"),
    {
        **{name: name for name in ("linear", "bmm", "softmax")},
        **{"convolutions": "conv", "layer normalisation": "ln"},
    }.items(),
)
def test_errors_of_kernels_are_those_of_the_page(word: str, family: str) -> None:
    table = PAGE.split("| own | worst GPU |")[1]
    row = next(line for line in table.splitlines() if line.startswith(f"| {word} |"))
    _, own, _, _, new, *_ = (cell.strip() for cell in row.strip("|").split("|"))
    fitted, transferred = (kernel_errors(gpu_facts(name))[family] for name in ("T4", "K80"))
    assert fitted == (KernelBasis.FITTED, pytest.approx(float(own.rstrip(" %")) / 100, abs=6e-4))
    assert transferred == (
        KernelBasis.TRANSFERRED,
        pytest.approx(float(new.rstrip(" %")) / 100, abs=6e-4),
    )


def test_errors_of_published_steps_are_those_of_the_page() -> None:
    table = PAGE.split("| published ms |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    *steps, middle, mean, worst = rows
    ratios = [float(step[-1]) for step in steps]
    errors = [abs(ratio - 1) for ratio in ratios]
    assert len(steps) == PUBLISHED_STEPS.count
    assert mean[-1] == format_share(PUBLISHED_STEPS.mean_error)
    assert worst[-1] == format_share(PUBLISHED_STEPS.worst_error)
    assert middle[-1] == format_share(round(median(errors), 2))
    assert sum(errors) / len(errors) == pytest.approx(PUBLISHED_STEPS.mean_error, abs=0.006)
    assert max(errors) == pytest.approx(PUBLISHED_STEPS.worst_error, abs=0.006)
