from dataclasses import replace
from itertools import combinations, pairwise, permutations

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from hypothesis import strategies as st
from placed_steps import diamond, edge, op, pair, placed, placed_steps

from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.effort import Effort, Stop
from placement_advisor.solvers.pipeline_stages import Pool, StageProblem, best_stages
from placement_advisor.solvers.step_search import least_step, state_apart

SOME = Effort(units=0.1)


def search(step, *starts, effort=SOME):
    return least_step(step.simulator(), starts or (step.on_one_device().placement,), {}, effort)


def two_chains(op_ns=100):
    """Return two chains of twelve ops that nothing joins: too many placements to try all."""
    chains = [[f"{chain}{i}" for i in range(12)] for chain in ("left", "right")]
    names = [name for chain in chains for name in chain]
    edges = [edge(one, other, 100) for chain in chains for one, other in pairwise(chain)]
    graph, times_ns = OpGraph([op(name, 100) for name in names], edges), dict.fromkeys(names, op_ns)
    return placed(graph, dict.fromkeys(names, "a"), times_ns, pair(latency_ns=1_000))


def test_two_chains_that_nothing_joins_go_to_two_devices():
    found = search(two_chains())
    assert found.step_ns == 1_200
    device_of = found.placement.device_of
    assert {device_of[f"left{i}"] for i in range(12)} == {device_of["left0"]}
    assert device_of["left0"] != device_of["right0"]


def test_the_best_of_all_placements_of_a_diamond_is_found():
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    all_ns = [step.simulator().step_ns_at(where) for where in step.placements()]
    found = search(step)
    assert found.step_ns == min(all_ns) < 250
    assert found.stopped_by is Stop.PROOF
    assert found.tried == 1 + len(all_ns)


def test_two_thousand_ops_are_searched():
    names = [str(i) for i in range(2_000)]
    graph = OpGraph([op(name, 8) for name in names], [])
    found = search(placed(graph, dict.fromkeys(names, "a"), dict.fromkeys(names, 10)))
    assert found.stopped_by is Stop.EFFORT
    assert 10_000 <= found.step_ns < 20_000


def test_effort_is_spent_as_asked_and_the_clock_cuts_the_search():
    found = search(two_chains(), effort=Effort(units=0.05))
    assert 0.05 <= found.units < 0.06
    assert found.tried > 100
    assert found.stopped_by is Stop.EFFORT
    found = search(two_chains(), effort=Effort(units=1e6, time_limit_s=0.5))
    assert found.stopped_by is Stop.CLOCK
    assert found.units < 1e6
    assert found.step_ns == two_chains().simulator().step_ns(found.placement) <= 2_400


def test_what_is_computed_for_updates_alone_is_state():
    roles = {
        **{"v": Role.VARIABLE, "read": Role.FORWARD, "forward": Role.FORWARD},
        **{"backward": Role.BACKWARD, "gradient": Role.BACKWARD, "update": Role.UPDATE},
        "fed": Role.FORWARD,
    }
    ends = [
        *("v read", "read forward", "forward backward", "forward gradient"),
        *("backward gradient", "gradient update", "backward fed"),
    ]
    ops = (
        op(name, 8, role=role)._replace(variable="v" if name in ("v", "read", "update") else None)
        for name, role in roles.items()
    )
    graph = OpGraph(ops, [edge(*each.split(), 8) for each in ends])
    keys = state_apart(graph, graph.ops, dict.fromkeys([*roles][:-1], "layer"))
    state = {name for name, key in keys.items() if key == ("layer", True)}
    assert state == {"v", "read", "gradient", "update"}
    assert keys["forward"] == keys["backward"] == ("layer", False)
    assert "fed" not in keys


def of_memory(memory_bytes, **cluster):
    """Return a pair of devices of so much memory."""
    found = pair(**cluster)
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in found.devices)
    return replace(found, devices=devices)


def variable(name):
    return op(name, 8, role=Role.VARIABLE)._replace(variable=name, parameter_bytes=600)


def test_what_does_not_fit_one_device_is_parted_though_that_takes_longer():
    # Two variables of 600 bytes on devices of 1,000 each, and a tensor that is slow to cross.
    readers = [op("first", 8)._replace(variable="v"), op("second", 8)._replace(variable="w")]
    ends = ("v first", "w second", "first second")
    graph = OpGraph(
        [variable("v"), variable("w"), *readers], [edge(*each.split(), 8) for each in ends]
    )
    everywhere = dict.fromkeys(["v", "w", "first", "second"], "a")
    cluster = of_memory(1_000, latency_ns=500)
    found = search(placed(graph, everywhere, {"first": 10, "second": 10}, cluster))
    assert found.excess_bytes == 0
    assert found.placement.device_of["v"] != found.placement.device_of["w"]
    assert found.step_ns > 500


def test_what_fits_nowhere_is_said_to_lack_memory():
    step = placed(OpGraph([variable("v")], []), {"v": "a"}, {}, of_memory(500))
    assert search(step).excess_bytes == 100


@cases(40)
@given(placed_steps(hosts=True))
def test_no_search_is_worse_than_its_starts_or_differs_when_repeated(step):
    assume(step.placement.device_of)
    effort = Effort(units=0.02, seed=3)
    starts = step.placement, step.on_one_device().placement
    found = search(step, *starts, effort=effort)
    assert found.step_ns <= min(step.simulator().step_ns(start) for start in starts)
    assert found.step_ns == step.simulator().step_ns(found.placement)
    assert search(step, *starts, effort=effort) == found
    found.placement.check(step.graph, step.cluster.place_names())


_TIME = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25, 7.0])


@st.composite
def problems(draw):
    """Draw a small problem: uneven pools, groups of one op or more, memory that may not suffice."""
    count = draw(st.integers(1, 6))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = sorted({(a, b) for a, b in draw(st.lists(ends, max_size=8)) if a < b})
    groups = {}
    for number in range(count):
        groups.setdefault(draw(st.integers(0, count - 1)), []).append(number)
    pools = [
        Pool(
            devices=tuple(f"pool{i}:{k}" for k in range(draw(st.integers(1, 2)))),
            work=tuple(draw(st.lists(_TIME, min_size=count, max_size=count))),
            capacity_bytes=draw(st.one_of(st.none(), st.integers(0, 12))),
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    return StageProblem(
        ops=tuple(f"op{i}" for i in range(count)),
        edges=tuple(edges),
        copy_time=tuple(draw(_TIME) for _ in range(count)),
        size_bytes=tuple(draw(st.integers(0, 4)) for _ in range(count)),
        groups=tuple(map(tuple, groups.values())),
        pools=tuple(pools),
    )


def largest_load(problem, device_of):
    """Return the load of the fullest device, given that of each group; None if it does not fit."""
    of_op = {
        number: device
        for group, device in zip(problem.groups, device_of, strict=True)
        for number in group
    }
    loads = []
    for pool in problem.pools:
        for device in pool.devices:
            held = [number for number, where in of_op.items() if where == device]
            needed = sum(problem.size_bytes[number] for number in held)
            if pool.capacity_bytes is not None and needed > pool.capacity_bytes:
                return None
            load = sum(pool.work[number] for number in held)
            for number, home in of_op.items():
                readers = {of_op[b] for a, b in problem.edges if a == number} - {home}
                if readers and (device == home or device in readers):
                    load += problem.copy_time[number]
            loads.append(load)
    return max(loads)


def best_by_trying(problem):
    """Return the least largest load of all ways to cut the groups in their order."""
    devices = [device for pool in problem.pools for device in pool.devices]
    count = len(problem.groups)
    found = []
    for used in range(1, min(count, len(devices)) + 1):
        for cuts in combinations(range(1, count), used - 1):
            bounds = [0, *cuts, count]
            for chosen in permutations(devices, used):
                device_of = [
                    device
                    for device, (first, last) in zip(chosen, pairwise(bounds), strict=True)
                    for _ in range(first, last)
                ]
                found.append(largest_load(problem, device_of))
    return min((load for load in found if load is not None), default=None)


def test_a_chain_is_cut_where_the_larger_load_is_least():
    # 2, 3 | 6 with a tensor of 1 that both pay for: 6 and 7.
    problem = StageProblem(
        ops=("first", "second", "third"),
        edges=((0, 1), (1, 2)),
        copy_time=(1.0, 1.0, 1.0),
        size_bytes=(1, 1, 1),
        groups=((0,), (1,), (2,)),
        pools=(Pool(devices=("d0", "d1"), work=(2.0, 3.0, 6.0)),),
    )
    assert best_stages(problem) == ("d0", "d0", "d1")
    assert largest_load(problem, ("d0", "d0", "d1")) == 7.0


@given(problem=problems())
def test_no_cut_loads_the_fullest_device_less(problem):
    device_of = best_stages(problem)
    best = best_by_trying(problem)
    if device_of is None:
        assert best is None
    else:
        assert largest_load(problem, device_of) == pytest.approx(best)
