from dataclasses import replace

import pytest
from drawn_cases import cases
from hypothesis import given
from op_graphs import sized
from placed_steps import edge, op, pair, place, placed_steps, price

from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device, Dispatch
from placement_advisor.simulator.break_even import BATCH_REACH, Axis, BreakEvenOutcome, break_even
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.simulator.step_growth import GrowingStep, StepGrowth

WORTHWHILE = 0.97
BATCH = 10


def input_op(name, size_bytes):
    return Op(name, "Placeholder", Role.INPUT, output_bytes=(size_bytes,))


# x, 400 bytes, is read by left (1,000 ns) and right (1,000 ns, 40 bytes), both by join (0 ns).
TOWERS = OpGraph(
    [input_op("x", 400), op("left", 40), op("right", 40), op("join", 4)],
    [
        *(edge("x", side, 400) for side in ("left", "right")),
        *(edge(side, "join", 40) for side in ("left", "right")),
    ],
)
TOWER_COSTS = price({"left": 1_000, "right": 1_000, "join": 0})
SINGLE = replace(place(dict.fromkeys(("x", "left", "right", "join"), "a")), label="single")
SPLIT = replace(
    place({"x": "a", "left": "a", "right": "b", "join": "a"}), label="right on the other device"
)


def growth_of(graph, degree=1, batch=BATCH):
    """Return how a step grows of which all tensors of 40 bytes and more are of samples."""

    def grown(op, times):
        factor = times ** (degree if op.name == "right" else 1)
        sizes = (size or 0 for size in op.output_bytes)
        found = tuple(size * factor if size >= 40 else size for size in sizes)
        return op._replace(output_bytes=found, flops=op.flops and op.flops * factor)

    larger = {
        times: sized([grown(op, times) for op in graph.ops], graph.edges) for times in (2, 3, 4)
    }
    return StepGrowth(graph, batch, larger)


def searched(simulator, splits=(SPLIT,), growing=None, *, baseline=SINGLE, corrections=None):
    return break_even(
        simulator,
        baseline=baseline,
        splits=splits,
        growing=growing,
        worthwhile_ratio=WORTHWHILE,
        corrections=corrections or {},
    )


def towers(cluster, *splits, growing=None, corrections=None):
    costs = TOWER_COSTS.everywhere(cluster)
    growing = growing or GrowingStep(growth_of(TOWERS), costs, cluster)
    simulator = Simulator(TOWERS, costs, cluster)
    return searched(simulator, splits or (SPLIT,), growing, corrections=corrections)


def test_a_prediction_that_its_measurement_refuted_is_corrected_by_it():
    cluster = pair(latency_ns=50, bytes_per_ns=2.0)
    # single 2,000; split 200 + 50, 1,000, 20 + 50.
    predicted = towers(cluster)
    assert predicted.bandwidth.here.best.ratio == 1_320 / 2_000
    # Measured it took 1.1 times the step of single: it must not be said to win here.
    measured = towers(cluster, corrections={SPLIT.label: 1.1 / (1_320 / 2_000)})
    assert measured.bandwidth.here.best.ratio == pytest.approx(1.1)
    # It would win below 1,940 / (1.1 / 0.66) = 1,164 ns, 440 / B < 64 of which are bytes.
    wins, _ = crossing(measured.bandwidth)
    assert wins == pytest.approx(440 / 64 * 1e9, rel=0.02)
    assert measured.free_copies.ratio == pytest.approx(1_000 / 2_000 * 1.1 / 0.66)


def crossing(sweep):
    assert sweep.outcome is BreakEvenOutcome.CROSSES
    return sweep.wins_from.value, sweep.loses_at.value


def test_the_break_even_of_each_axis_by_hand():
    # single 2,000; split 400/B + 50, 1,000, 40/B + 50: below 1,940 if 440/B < 840, B > 0.524 B/ns
    wins, loses = crossing(towers(pair(latency_ns=50, bytes_per_ns=0.1)).bandwidth)
    assert loses <= 440 / 840 * 1e9 < wins < 1.01 * loses
    # A faster link wins today; the least at which it would is the same.
    faster = towers(pair(latency_ns=50, bytes_per_ns=2.0)).bandwidth
    assert crossing(faster)[0] == pytest.approx(wins, rel=0.011)
    # 1,000 + 440 + twice the latency, below 1,940: less than 250
    wins, loses = crossing(towers(pair(latency_ns=10)).latency)
    assert wins < 250 <= loses <= 1.02 * wins
    # n samples: split 144 n + 2 × 500, single 200 n; below 0.97 if 1,000 < 50 n: from 21 on.
    assert crossing(towers(pair(latency_ns=500)).batch) == (21, 20)


def test_a_tower_that_grows_with_the_square_of_the_batch_by_hand():
    # n samples: left takes 100 n, right 10 n² and makes 0.4 n² bytes. Single takes both; beside
    # left, right waits for 40 n bytes and 500 ns, and as long again for its own to come back.
    squared = TOWERS.ops[2]._replace(flops=1_000)
    graph = OpGraph([*TOWERS.ops[:2], squared, TOWERS.ops[3]], TOWERS.edges)
    cluster = pair(latency_ns=500)
    costs = TOWER_COSTS.everywhere(cluster)
    growing = GrowingStep(growth_of(graph, degree=2), costs, cluster)
    found = searched(Simulator(graph, costs, cluster), growing=growing)
    for point in found.batch.points:
        n = point.value
        alone_ns = 100 * n + 10 * n**2
        split_ns = max(100 * n, 40 * n + 500 + 10 * n**2) + round(0.4 * n**2) + 500
        assert point.best.ratio == pytest.approx(split_ns / alone_ns, rel=1e-3)
    # What wins in between does not at a batch twice as large.
    assert found.batch.changes == 2
    assert crossing(found.batch)[0] < 40
    assert found.batch.points[-1].best.ratio > WORTHWHILE


def test_the_best_split_at_a_batch_is_known_where_its_neighbours_agree():
    found = towers(pair(latency_ns=500))
    # 21 is the first that wins; 20 and 28 are next to each other along the sweep.
    assert found.best_at(24) is None
    for batch, wins in ((12, False), (30, True), (600, True)):
        best = found.best_at(batch)
        assert (best.ratio < WORTHWHILE) is wins
    assert found.best_at(10_000) is None


def test_todays_value_is_among_the_points_and_has_todays_ratio():
    for sweep in towers(pair(latency_ns=10)).sweeps():
        assert sweep.here in sweep.points
        # (1,000 + 440 + 20) / 2,000
        assert sweep.here.best.ratio == 0.73
        values = [point.value for point in sweep.points]
        assert values == sorted(set(values))


def test_a_split_wins_nowhere_throughout_or_from_some_value_on():
    # All of it on the other device but the join: nothing runs at the same time.
    moved = replace(SPLIT, device_of={**SPLIT.device_of, "left": "b"})
    found = towers(pair(), moved)
    assert [sweep.outcome for sweep in found.sweeps()] == [BreakEvenOutcome.NOWHERE] * 3
    assert all(sweep.wins_from is sweep.loses_at is None for sweep in found.sweeps())
    assert found.free_copies.ratio == 1.0
    found = towers(pair(latency_ns=0, bytes_per_ns=1_000)).bandwidth
    assert found.outcome is BreakEvenOutcome.THROUGHOUT
    assert found.changes == 0
    assert towers(pair(latency_ns=500)).free_copies.ratio == 0.5
    costs = TOWER_COSTS.everywhere(pair())
    growth = growth_of(TOWERS, batch=1)
    batch = towers(pair(), growing=GrowingStep(growth, costs, pair())).batch
    values = [point.value for point in batch.points]
    assert values[0] == 1
    assert values[-1] == BATCH_REACH


def test_the_best_of_several_splits_may_change_along_the_sweep():
    # An op of 300 ns needs no copy: without it one device takes 2,000. Towers take 1,440 and twice
    # the latency, which is less up to 280.
    graph = OpGraph([*TOWERS.ops, op("apart", 40)], TOWERS.edges)
    cluster = pair(latency_ns=10)
    costs = price({"left": 1_000, "right": 1_000, "join": 0, "apart": 300})
    on_a = {**SINGLE.device_of, "apart": "a"}
    both = replace(SPLIT, device_of={**on_a, "right": "b"}, label="tower")
    apart = replace(SPLIT, device_of={**on_a, "apart": "b"}, label="apart")
    simulator = Simulator(graph, costs.everywhere(cluster), cluster)
    found = searched(simulator, [apart, both], baseline=replace(SINGLE, device_of=on_a))
    for point in found.latency.points:
        assert point.best.split == ("tower" if point.value < 280 else "apart")
        assert point.best.ratio == min(2_000, 1_440 + 2 * point.value) / 2_300
    assert found.latency.outcome is BreakEvenOutcome.THROUGHOUT


def test_winning_that_begins_and_ends_again_is_counted():
    # The decay (500 ns) does not grow with the batch, n samples take 50 ns each: single 500 + 50 n.
    # Beside them the decay ends at 550: no gain for one sample. From 323 on samples are all that
    # counts: 50 n > 0.97 (500 + 50 n).
    graph = OpGraph(
        [input_op("x", 400), op("forward", 40), op("decay", 40)], [edge("x", "forward", 400)]
    )
    cluster = pair(dispatch=Dispatch(remote_start_ns=50))
    on_a = {"x": "a", "forward": "a", "decay": "a"}
    costs = price({"forward": 500, "decay": 500}).everywhere(cluster)
    found = searched(
        Simulator(graph, costs, cluster),
        [replace(SPLIT, device_of={**on_a, "decay": "b"})],
        GrowingStep(growth_of(graph), costs, cluster),
        baseline=replace(SINGLE, device_of=on_a),
    )
    assert found.batch.changes == 2
    assert crossing(found.batch) == (2, 1)
    wins = [point.value for point in found.batch.points if point.best.ratio < WORTHWHILE]
    assert max(wins) < 323 < found.batch.points[-1].value


def test_without_a_split_or_a_link_there_is_no_break_even():
    cluster = pair()
    simulator = Simulator(TOWERS, TOWER_COSTS.everywhere(cluster), cluster)
    alone = replace(cluster, links=())
    for there, splits in ((cluster, ()), (alone, (SPLIT,))):
        assert searched(simulator.on(there), splits) is None


def test_an_axis_that_has_no_end_or_no_figure_is_not_swept():
    found = towers(pair(bytes_per_ns=float("inf")))
    assert found.bandwidth is None
    assert found.latency is not None
    found = towers(pair(latency_ns=0), growing=BatchSplitError("it takes no batch of 20"))
    assert (found.batch, found.latency) == (None, None)
    assert found.no_batch == "it takes no batch of 20"
    assert [sweep.axis for sweep in found.sweeps()] == [Axis.BANDWIDTH]


def test_links_of_hosts_stay_as_they_are():
    # Inputs are on the host: single pays 400 bytes over its link, whatever other links do. Of
    # those that change the slowest is named.
    plain = pair()
    gpus = tuple(replace(device, kind="GPU", host="h") for device in plain.devices)
    slow, fast = plain.links[0], replace(plain.links[1], bandwidth_bytes_per_s=2e9)
    up = [replace(slow, source="h", target=gpu.name) for gpu in gpus]
    cluster = replace(
        plain,
        devices=gpus,
        hosts=(Device(name="h", kind="CPU"),),
        links=(slow, fast, *(replace(link, bandwidth_bytes_per_s=0.1e9) for link in up)),
    )
    graph = OpGraph(
        [each._replace(device_kinds=frozenset({"CPU", "GPU"})) for each in TOWERS.ops], TOWERS.edges
    )
    found = searched(Simulator(graph, TOWER_COSTS.everywhere(cluster), cluster))
    # single 4,010 + 2,000; split 4,010 + 1,000: the tensor back has no bytes to speak of
    assert found.free_copies.ratio == 5_010 / 6_010
    assert found.bandwidth.here.value == 1_000_000_000


def ratio(step, cluster):
    simulator = Simulator(step.graph, step.all_costs(), cluster)
    alone_ns = simulator.step_ns(step.on_one_device().placement)
    return simulator.step_ns(step.placement) / max(1, alone_ns)


@cases(40)
@given(placed_steps(hosts=True))
def test_the_winning_side_wins_in_a_simulation_of_its_own_and_the_losing_side_does_not(step):
    alone = step.on_one_device().placement
    found = searched(step.simulator(), [step.placement], baseline=alone)
    if found is None:
        assert not step.cluster.device_links()
        return
    for sweep in found.sweeps():
        here = sweep.here.value

        def at(value, sweep=sweep, here=here):
            def changed(link):
                if sweep.axis is Axis.BANDWIDTH:
                    return link.with_bytes_scaled(here / value)
                return link.with_latency_scaled(value / here)

            return ratio(step, step.cluster.with_device_links(changed))

        assert sweep.here.best.ratio == ratio(step, step.cluster)
        ends = [point for point in (sweep.wins_from, sweep.loses_at) if point]
        assert all(point.best.ratio == at(point.value) for point in ends)
        if sweep.outcome is BreakEvenOutcome.CROSSES:
            assert ends[0].best.ratio < WORTHWHILE <= ends[1].best.ratio
            assert (ends[0].value > ends[1].value) == (sweep.axis is Axis.BANDWIDTH)
        elif sweep.outcome is BreakEvenOutcome.NOWHERE:
            assert all(point.best.ratio >= WORTHWHILE for point in sweep.points)
        else:
            worst = sweep.points[0 if sweep.axis is Axis.BANDWIDTH else -1]
            assert worst.best.ratio < WORTHWHILE
