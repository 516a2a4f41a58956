"""One thing has one figure: what stands in several reports is the same, or says what it is.

Times of a measured step are of three sorts: timed without the profiler, the median of profiled
steps, and one profiled step. In this sample each of them is another.
"""

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import sample_analysis
from drawn_pictures import words
from op_graphs import op
from report_samples import towers_graph
from sample_analysis import published

from placement_advisor.analysis.recommendation import recommend
from placement_advisor.cost.gpu.assumed_times import times_by_gpu
from placement_advisor.cost.gpu.kernel_times import OPS, KernelBasis, kernel_errors
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Kernel, KernelFamily
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import read_hardware
from placement_advisor.report.analysis_report import full_text, render_markdown
from placement_advisor.report.pictures.layer_layout import layer_map
from placement_advisor.report.pictures.result_plots import draw_comparison
from placement_advisor.report.pictures.timeline_plot import draw_timeline
from placement_advisor.report.statements import FAMILY_WORDS, MEDIAN_OF, MODELS, expected_error
from placement_advisor.report.tensorboard.tab_data import Overview
from placement_advisor.report.terminal import screen
from placement_advisor.results.analysis import PUBLISHED_STEPS, GpuTimes
from placement_advisor.units import format_ns, format_share

W0 = "worker:0"
MAP = layer_map(towers_graph())


@pytest.fixture
def told():
    """The sample, whose profiled steps compute longer in the median than the one that is drawn."""
    plain = sample_analysis.sample()
    single, towers, other = plain.candidates
    candidates = (_longer(single), _longer(towers), other)
    answer = recommend(candidates, plain.testbed, plain.as_is, plain.bound)
    return replace(plain, candidates=candidates, recommendation=answer)


def _longer(candidate):
    profile = candidate.measured.profile
    compute_ns = {device: round(time * 1.05) for device, time in profile.compute_ns.items()}
    exposed = {device: round(time * 1.2) for device, time in profile.exposed_by_device.items()}
    longer = replace(profile, compute_ns=compute_ns, exposed_by_device=exposed)
    return replace(candidate, measured=replace(candidate.measured, profile=longer))


def test_figures_of_a_step_are_the_same_everywhere(told, tmp_path):
    towers = told.candidates[1]
    computes = format_ns(towers.profile.compute_ns[W0])
    waits = format_ns(towers.profile.exposed_ns)
    timed = format_ns(median(towers.measured.step_ns))
    speedup = f"{towers.comparison.speedup.median:.2f}×"
    (says,) = [text for text in told.recommendation.deciding if f"{W0} computes" in text]
    assert f"computes for {computes} a step" in says
    assert says.endswith("(profiled)")
    on_screen = "\n".join(line.text for line in screen(published(told), tmp_path, 100))
    assert f" {waits}\n" in on_screen  # The table's last column.
    assert f"waits {waits} for copies" in on_screen
    assert timed in on_screen
    assert speedup in on_screen
    for text in (full_text(told), render_markdown(told)):
        said = " ".join(text.split())
        for figure in (f"compute: {computes} on {W0}", f"{waits} exposed", timed, speedup):
            assert figure in said
    content = sample_analysis.as_json(told)["candidates"][1]["measured"]
    assert format_ns(content["compute_ns"][W0]) == computes
    assert format_ns(content["exposed_ns"]) == waits
    shown = next(each for each in Overview.of(told, MAP).candidates if each.name == "towers")
    tab = [measured for _, measured in shown.figures]
    assert (tab[0], tab[2], tab[3].split()[0]) == (timed, waits, speedup)
    compared = words(draw_comparison(told))
    assert timed in compared
    assert speedup in " ".join(compared)
    assert any("timed (95 % interval), cut by the shares of profiled steps" in t for t in compared)
    assert speedup in " ".join(words(draw_timeline(told, told.candidates[:2])))


PAGE = (Path(__file__).parents[2] / "docs/explanation/gpus.md").read_text(encoding="utf-8")


def told_of_times(*times):
    return expected_error((), map(GpuTimes.of, times), stand_in=False)


def test_candidates_whose_errors_are_known_are_told_with_them():
    told = expected_error(["single", "alternating", "own"], (), stand_in=True)
    assert f"on {MODELS} models" in told
    assert f"alternating {format_share(MEDIAN_OF['alternating'])}" in told
    assert "towers" not in told
    assert "own" not in told


def test_where_nothing_is_known_of_costs_no_errors_are_told():
    unmeasured = sample_analysis.unmeasured()
    elsewhere = replace(unmeasured.testbed, stand_in=False)
    assert "Expect errors" not in full_text(replace(unmeasured, testbed=elsewhere))


def test_times_on_gpus_are_told_for_each_with_what_they_rest_on():
    ours = sample_analysis.TIMES
    transferred = tuple(replace(each, basis=KernelBasis.TRANSFERRED) for each in ours.families)
    both = told_of_times(ours, replace(ours, gpu="A10", families=transferred))
    assert "on V100-SXM2" in both
    assert "38 % on kernels measured on other chips" in both.split("on A10")[1]
    bare = replace(ours, families=(), assumed_share=0.0, roofline_share=1.0)
    told = told_of_times(bare)
    assert told.endswith("0 % rests on kernels without a record, 100 % on peaks alone.")


def test_shares_are_those_of_the_time_of_ops_on_each_sort_of_gpu():
    kernels = {
        "product": (Kernel(KernelFamily.LINEAR, (1, 8, 8, 8)), CostBasis.KERNEL),
        "gradient": (Kernel(KernelFamily.CONV_BY_INPUT, (1,) * 10), CostBasis.KERNEL_ASSUMED),
        "gather": (None, CostBasis.ROOFLINE),
        "loop": (None, CostBasis.GUESSED),
    }
    graph = OpGraph([op(name)._replace(kernel=kernel) for name, (kernel, _) in kernels.items()], [])
    times_ns = dict(zip(kernels, (40_000, 30_000, 12_000, 6_000), strict=True))
    costs = {
        name: OpCost(time_ns=times_ns[name], basis=basis) for name, (_, basis) in kernels.items()
    }
    table = CostTable(costs=costs)
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


@pytest.mark.parametrize(
    ("word", "family"),
    [
        *((name, name) for name in ("linear", "bmm", "softmax")),
        *(("convolutions", "conv"), ("layer normalisation", "ln")),
    ],
)
def test_errors_of_kernels_are_those_of_the_page(word, family):
    table = PAGE.split("| own | worst GPU |")[1]
    row = next(line for line in table.splitlines() if line.startswith(f"| {word} |"))
    _, own, _, _, new, *_ = (cell.strip() for cell in row.strip("|").split("|"))
    shares = (("T4", KernelBasis.FITTED, own), ("K80", KernelBasis.TRANSFERRED, new))
    for gpu, basis, cell in shares:
        error = pytest.approx(float(cell.rstrip(" %")) / 100, abs=6e-4)
        assert kernel_errors(gpu_facts(gpu))[family] == (basis, error)


def test_errors_of_published_steps_are_those_of_the_page_and_every_family_has_words():
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
    assert set(FAMILY_WORDS) == set(OPS)
