import random
from dataclasses import replace

import numpy as np
import pytest
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    clock,
    diamond,
    op,
    pair,
    place,
    placed_steps,
    price,
    star,
    wired,
)
from small_steps import small_step

from placement_advisor.files.untrusted import MAX_NS
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import CopyWork, Device
from placement_advisor.simulator.sensitivity import CostUncertainty, Sensitivity
from placement_advisor.solvers.lower_bounds import (
    MAX_PLACEMENTS,
    Step,
    bound_step,
    every_placement,
    least_ratio_if_wrong,
    longest_path,
    root_cut,
    shared_work,
    work_value_ns,
)

STEPS, STEPS_AT_NIGHT = 300, 8_000


def test_the_path_and_the_work_of_a_diamond_by_hand():
    path = longest_path(Step(diamond().simulator()))
    assert path.value_ns == 50 + 100 + 20
    assert path.reason == "critical path: 3 ops need one another in turn, 170 ns"
    work = shared_work(Step(diamond().simulator()))
    assert work.value_ns == (50 + 80 + 100 + 20) / 2
    assert work.reason == "work: all ops, shared out evenly, keep the devices busy for 125 ns"


def test_an_op_that_costs_more_to_send_to_than_it_takes_stays_with_the_root():
    # Each of the five ops takes 8 ns; to leave the root's device costs that 9 ns of sending.
    step = star(5, op_ns=8, work=CopyWork(per_copy_ns=9))
    cut = root_cut(Step(step.simulator()))
    assert cut.value_ns == 10 + 5 * 8
    assert cut.reason.startswith("copies: the device that holds root is busy for 50 ns; ")


def fastest(step):
    """Return the shortest step on each place alone, and on several; None if there is none."""
    simulator, names = step.simulator(), step.cluster.place_names()
    alone_ns, split_ns = {}, None
    for where in step.placements():
        step_ns, used = simulator.step_ns_at(where), set(where.tolist())
        if len(used) > 1:
            split_ns = step_ns if split_ns is None else min(split_ns, step_ns)
        for number in used if len(used) == 1 else range(len(names)) if not used else ():
            alone_ns[names[number]] = step_ns
    return alone_ns, split_ns


def test_a_small_step_is_bounded_by_its_best_placement():
    _, split_ns = fastest(diamond())
    found = bound_step(diamond().simulator())
    assert found.split_ns == split_ns
    assert found.reason == f"all 14 placements were simulated, the fastest takes {split_ns} ns"


def test_a_step_with_too_many_placements_is_not_tried_in_full():
    step = star(15, op_ns=1, work=HALF_EACH)
    assert len(step.graph) == 16
    assert MAX_PLACEMENTS < 2**16
    assert every_placement(Step(step.simulator()), step.simulator()) is None


def test_a_step_without_ops_has_a_bound():
    assert bound_step(wired({}, "").simulator()).step_ns == 0


@given(placed_steps(hosts=True))
def test_no_placement_of_a_larger_step_beats_what_an_argument_says(step):
    found = bound_step(step.simulator())
    step_ns = step.simulate().step_ns
    used = set(step.placement.device_of.values())
    assume(used)
    assert step_ns >= found.step_ns
    assert step_ns >= (found.alone_ns[used.pop()] if len(used) == 1 else found.split_ns)


def places_of(step, op):
    """Return the places that an op can run on."""
    return np.flatnonzero(step.time_ns[:, op] <= MAX_NS)


def longest_chain_ns(step):
    """Return what the longest chain takes, by trying all that go on."""
    readers = {op: set() for op in range(len(step.ops))}
    for producer, read_by in step.tensors():
        readers[producer].update(read_by)

    def rest_ns(op):
        end_ns = step.end_ns[places_of(step, op)].min()
        return step.time_ns[:, op].min() + max([end_ns, *map(rest_ns, readers[op])])

    begin_ns = [step.begin_ns[places_of(step, op)].min() for op in readers]
    return max((begin_ns[op] + rest_ns(op) for op in readers), default=0)


def busiest_root_ns(step):
    """Return the least work of the device that holds a group, for the group where it is most."""
    busy_ns = {root: [] for root in range(step.groups)}
    for number in range(1, 2**step.groups):
        here = {group for group in range(step.groups) if number >> group & 1}
        work_ns = sum(
            ns for ns, group in zip(step.least_ns, step.group_of, strict=True) if group in here
        )
        copies = zip(step.tensors(), step.send_ns, step.receive_ns, strict=True)
        for (producer, read_by), send_ns, receive_ns in copies:
            reads_here = {step.group_of[reader] in here for reader in read_by}
            if step.group_of[producer] in here:
                work_ns += send_ns * (False in reads_here)
            else:
                work_ns += receive_ns * (True in reads_here)
        for root in here:
            busy_ns[root].append(work_ns)
    return max(map(min, busy_ns.values()))


@pytest.mark.parametrize(
    "seeds",
    [range(STEPS), pytest.param(range(STEPS, STEPS_AT_NIGHT), marks=pytest.mark.campaign)],
    ids=["", "more"],
)
def test_no_argument_says_more_than_the_fastest_placement_and_each_says_what_it_can(seeds):
    exact = set()
    for seed in seeds:
        small = small_step(seed)
        simulator = small.simulator()
        step, told, (alone_ns, split_ns) = Step(simulator), bound_step(simulator), fastest(small)
        path, work, cut = longest_path(step), shared_work(step), root_cut(step)
        for name, step_ns in alone_ns.items():
            assert told.alone_ns[name] <= step_ns, f"step {seed} on {name} alone"
        assert set(told.alone_ns) == set(small.cluster.place_names())
        first = small.cluster.devices[0]
        if first.host is None:
            assert told.alone_ns[first.name] == alone_ns[first.name], f"step {seed}"

        assert path.value_ns == longest_chain_ns(step), f"step {seed}"
        devices = small.cluster.device_names()
        even = [int(place in devices) for place in small.cluster.place_names()]
        assert work.value_ns >= work_value_ns(step, even), f"step {seed}"
        is_work = any(step.send_ns + step.receive_ns)
        assert (cut is None) == (step.has_hosts or not is_work), f"step {seed}"
        if cut is not None:
            assert cut.value_ns == step.begin_ns.min() + busiest_root_ns(step), f"step {seed}"
        if split_ns is not None:
            # Steps are so small that all placements are tried by what is tested as well.
            assert told.split_ns == split_ns, f"step {seed}: {told.reason}"
            most_ns = split_ns - step.overhead_ns
            for argument in filter(None, (path, work, cut)):
                assert argument.value_ns <= most_ns, f"step {seed}: {argument.reason}"
                if argument.value_ns == most_ns:
                    exact.add(argument.reason.partition(":")[0])
    assert exact == {"critical path", "work", "copies"}


@pytest.mark.parametrize("seed", range(20))
def test_the_weights_of_uneven_devices_come_near_to_the_best(seed):
    draw = random.Random(seed)
    names = [f"op_{i}" for i in range(draw.choice((5, 30, 200)))]
    a_ns, b_ns = ({name: round(10 ** draw.uniform(2, 5)) for name in names} for _ in range(2))
    step = PlacedStep(
        graph=OpGraph([op(name, 4) for name in names], []),
        placement=place(dict.fromkeys(names, "a")),
        costs=price(a_ns),
        costs_on={"b": price(b_ns)},
        cluster=pair(),
    )
    # Where ops can be cut, b takes those that it is best at, until both are busy for as long.
    on_a, on_b = sum(a_ns.values()), 0.0
    for name in sorted(names, key=lambda name: b_ns[name] / a_ns[name]):
        part = min(1.0, max(0.0, (on_a - on_b) / (a_ns[name] + b_ns[name])))
        on_a, on_b = on_a - part * a_ns[name], on_b + part * b_ns[name]
    assert 0.99 * on_a <= shared_work(Step(step.simulator())).value_ns <= on_a + 1


def least(step, **doubt):
    wrong = CostUncertainty(**{"copies": 1.0, "launches": 1.0, "ops": 1.0} | doubt)
    alone = step.on_one_device().placement
    return least_ratio_if_wrong(Sensitivity(step.simulator(), alone, wrong))


def test_a_proof_by_copies_holds_as_long_as_they_cost_more_than_the_op_by_hand():
    assert least(clock()) == 1.0
    assert least(clock(), copies=1.1) == 1.0
    # In whole ns, 5 / 2 + 2 / 2 = 3: each of 20 readers that leaves saves 3 of 130 ns.
    assert least(clock(), copies=2.0) == pytest.approx((10 + 20 * 3) / 130)


def chain(cluster):
    """Return two ops of 100 ns, one after the other, for which no split is of use."""
    return wired({"one": ("a", 100, 4), "two": ("a", 100, 4)}, "one -> two", cluster)


def test_what_the_ops_of_a_split_may_take_less_comes_off_by_hand():
    # No placement is faster, but for ops that take less elsewhere.
    step = chain(pair(latency_ns=1))
    # With its one copy of 5 ns a split takes 205 at least: all placements were simulated.
    assert least(step, ops=1.25) == pytest.approx(205 / 1.25 / 200)
    # The second device alone is like the first: there all ops take what they take here.
    assert least(step, ops=1.01) == 1.0


def test_what_all_ops_may_take_less_on_a_device_unlike_the_first_comes_off_by_hand():
    step = replace(chain(pair()), costs_on={"b": price({"one": 40, "two": 40})})
    assert least(step, ops=1.25) == pytest.approx(80 / 1.25 / 200)


@pytest.mark.parametrize(
    "second",
    [Device(name="b", kind="GPU"), Device(name="b", kind="CPU", host="a")],
    ids=["another kind", "another host"],
)
def test_a_device_is_not_like_the_first_only_because_ops_cost_the_same(second):
    like = pair()
    unlike = replace(like, devices=(like.devices[0], second))
    assert least(chain(like), ops=1.01) == 1.0
    assert least(chain(unlike), ops=1.01) == pytest.approx(200 / 1.01 / 200)


def test_costs_may_also_be_right():
    like = pair()
    first, second = (
        replace(device, launch_overhead_ns=launch_ns)
        for device, launch_ns in zip(like.devices, (2, 1), strict=True)
    )
    step = wired({"one": ("a", 1, 4)}, "", replace(like, devices=(first, second)))

    # In whole ns, launches that take 1.5 times as long take 3 and 2; 1.4 times would be 3 and 1.
    assert least(step, launches=1.5) == pytest.approx((1 + 1) / (1 + 2))


@cases(60)
@given(placed_steps(hosts=True))
def test_no_split_is_below_it_however_wrong_costs_are_within_the_doubt(step):
    assume(2 <= len(step.graph.placed_ops) <= 5)
    wrong = CostUncertainty(copies=2.0, launches=1.5, ops=1.1, may_hide_launches=True)
    known = Sensitivity(step.simulator(), step.on_one_device().placement, wrong)
    limit = least_ratio_if_wrong(known)
    names = [each.name for each in step.graph.placed_ops]
    devices = step.cluster.device_names()
    for where in step.placements():
        if len(set(where)) > 1 and max(where) < len(devices):
            split = place(dict(zip(names, (devices[i] for i in where), strict=True)))
            assert limit <= known.ratio(split).low + 1e-9
