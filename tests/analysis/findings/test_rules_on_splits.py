from dataclasses import replace

import pytest
from finding_evidence import (
    evidence_of,
    graph_of,
    growing_of,
    measured_as,
    on,
    op,
    told,
    two_devices,
    with_runs,
)

from placement_advisor.analysis.findings import scope_rules, split_rules, step_rules
from placement_advisor.analysis.findings.evidence import (
    YOUR_SPLIT,
    SplitFinding,
    SplitMove,
    best_split,
    combined,
    layer_moves,
    split_placements_to_time,
    with_variables,
)
from placement_advisor.graph.op import Role
from placement_advisor.machine.presets import read_hardware
from placement_advisor.measurement.measurement import CandidateFailure, FailureKind
from placement_advisor.testbed.benchmark import TimedPlacement

find_waits = split_rules.find_step_waits_for_transfers


def _told_of(find, graph, costs, on_b, label="halves", **more):
    """Return what a rule tells of a split with these ops on b."""
    return told(find, evidence_of(graph, costs, on(graph, label, on_b), **more))


def _about(code, split, *moves, **more):
    return SplitFinding(code=code, name="", split=split, finding="", moves=moves, where={}, **more)


def _handle(name, size_bytes, **more):
    more |= {"kind": "VarHandleOp", "variable": name, "parameter_bytes": size_bytes}
    return op(name, role=Role.VARIABLE, **more)


def _with_variable(size_bytes):
    graph = graph_of(
        [
            _handle("w", size_bytes, layer="low"),
            op("read", size_bytes, kind="ReadVariableOp", variable="w", layer="low"),
            op("low", 10),
            op("high", 10),
            op("rest"),  # Without it there would be no split any more with high on a.
        ],
        ("w", "read"), ("read", "low"), ("read", "high"), ("low", "high"),
    )  # fmt: skip
    return graph, {"read": 0, "low": 20, "high": 30, "rest": 1}


def test_a_variable_that_crosses_every_step_by_hand():
    graph, costs = _with_variable(500)
    halves = on(graph, "halves", {"high": "b", "rest": "b"})
    evidence = evidence_of(graph, costs, halves, stack_of={"read": [("model.py", 3)]})
    # 500 bytes hold the wire, low's 10 after them, which arrive after 520: high ends after 550.
    # With high on a all end after 50.
    assert evidence.splits[0].schedule.step_ns == 550
    (finding,) = told(scope_rules.find_variable_read_across, evidence)
    assert "halves: variable w (500 B) is on a and is read on b every step" in finding.finding
    assert finding.action == "in halves, put layer high on a"
    assert finding.saving.saving_ns == 550 - 50
    assert finding.where == {
        "layer": "low", "op": "read", "tensor": "read:0", "device": "b", "file": "model.py",
        "line": 3,
    }  # fmt: skip


def test_variables_that_one_move_brings_together_are_one_finding():
    def variable(name, size_bytes):
        read = op(f"{name}/read", size_bytes, kind="ReadVariableOp", variable=name, layer="low")
        return [_handle(name, 0, layer="low"), read]

    graph = graph_of(
        [*variable("bias", 50), *variable("kernel", 500), op("high", 10), op("rest")],
        ("bias", "bias/read"), ("kernel", "kernel/read"),
        ("bias/read", "high"), ("kernel/read", "high"),
    )  # fmt: skip
    costs = {"bias/read": 0, "kernel/read": 0, "high": 30, "rest": 1}
    there = {"high": "b", "rest": "b"}
    (finding,) = _told_of(scope_rules.find_variable_read_across, graph, costs, there)
    assert "variable kernel (500 B)" in finding.finding
    assert finding.action == "in halves, put layer high on a"


def test_moves_of_one_split_are_simulated_on_top_of_one_another():
    # Each of a's two long layers is better off on b, and so are both; the third is not then.
    graph, costs = _layers(300, 280, 200, 20)
    evidence = evidence_of(graph, costs, on(graph, "split", {"layer3": "b"}), recommended="split")
    (split,) = evidence.splits
    moves = tuple(layer_moves(evidence, split, "a", "b"))
    findings = combined(
        evidence, [_about(f"PA{n}", split, *moves, otherwise="do nothing") for n in (1, 2, 3)]
    )
    # a 780, b 20. With layer0 there 480 and 320; nothing else is worth moving after that.
    assert [(f.code, f.saving.saving_ns) for f in findings] == [("PA1", 780 - 480)]
    assert findings[0].action == "in split, put layer layer0 with its gradients and variables on b"


def _timed(placement, step_ns):
    return TimedPlacement(placement=placement, rounds=((step_ns, step_ns),) * 8)


def _two_moves():
    """Return the evidence of a split, and two findings in it, each with a move that helps."""
    graph, costs = _layers(300, 200, 100, 20)
    split = on(graph, "split", {"layer3": "b"})
    evidence = evidence_of(graph, costs, split, recommended="split")
    found = [
        _about(code, evidence.splits[0], SplitMove(f"move {layer}", {}, {layer: "b"}))
        for code, layer in (("PA1", "layer1"), ("PA2", "layer2"))
    ]
    return evidence, found


def test_moves_in_a_split_are_timed_one_after_the_other_and_save_what_that_shows():
    evidence, found = _two_moves()
    plain, first, second = split_placements_to_time(evidence, found)
    assert plain is evidence.splits[0].placement
    assert (first.device_of["layer1"], first.device_of["layer2"]) == ("b", "a")
    assert (second.device_of["layer1"], second.device_of["layer2"]) == ("b", "b")
    assert len({placement.label for placement in (plain, first, second)}) == 3
    assert split_placements_to_time(evidence, [replace(each, moves=()) for each in found]) == []
    timed = (_timed(plain, 1_000), _timed(first, 900), _timed(second, 800))
    told = combined(with_runs(evidence, timed=timed), found)
    savings = [(each.code, each.saving.saving_ns, each.saving.basis) for each in told]
    assert savings == [("PA1", 100, "measured"), ("PA2", 100, "measured")]
    timed = (_timed(plain, 1_000), _timed(first, 1_000), _timed(second, 850))
    assert combined(with_runs(evidence, timed=timed), found) == ()
    instead = [replace(found[0], otherwise="do without"), found[1]]
    (only,) = combined(with_runs(evidence, timed=timed), instead)
    assert (only.action, only.saving) == ("in split, do without", None)


def test_one_device_that_was_timed_says_whether_to_give_the_users_split_up():
    evidence, found = _two_moves()
    own = evidence.splits[0]._replace(name=YOUR_SPLIT)
    found = [replace(each, split=own) for each in found]
    plain, first, second, alone = split_placements_to_time(evidence, found)
    assert alone.family == "single"
    timed = (_timed(plain, 1_000), _timed(first, 900), _timed(second, 800))
    gives_up, other = combined(with_runs(evidence, timed=(*timed, _timed(alone, 700))), found)
    assert gives_up.action.startswith(
        "give your own split up: it takes 1.00 µs for a step, and 800 ns with all that helps here, "
        "one device 700 ns (measured side by side); if you keep it, move layer1"
    )
    assert (gives_up.saving.saving_ns, gives_up.saving.basis) == (300, "measured")
    assert (other.action, other.saving) == ("if you keep your own split, move layer2", None)
    keeps, _ = combined(with_runs(evidence, timed=(*timed, _timed(alone, 790))), found)
    assert keeps.action == "in your own split, move layer1"
    # It is timed beside that split where no move helps, too.
    helpless = [replace(found[0], split=own, moves=(), otherwise="leave it")]
    plain, alone = split_placements_to_time(evidence, helpless)
    assert (plain, alone.family) == (own.placement, "single")
    timed = (_timed(plain, 1_000), _timed(alone, 700))
    (finding,) = combined(with_runs(evidence, timed=timed), helpless)
    assert "one device 700 ns (measured side by side); if you keep it, leave it" in finding.action
    # What nothing is said about need not run.
    assert split_placements_to_time(evidence, [replace(helpless[0], otherwise=None)]) == []


def test_no_move_takes_an_op_elsewhere_than_one_before_it():
    graph, costs = _layers(300, 200, 100)
    evidence = evidence_of(graph, costs, on(graph, "split", {"layer2": "b"}), recommended="split")

    def moving(code, *ways):
        moves = (SplitMove(f"{op} to {to}", {}, {op: to}) for op, to in ways)
        return _about(code, evidence.splits[0], *moves)

    there, back = moving("PA1", ("layer1", "b")), moving("PA2", ("layer1", "a"), ("layer2", "a"))
    (finding,) = combined(evidence, [back, there])
    assert (finding.action, finding.saving.saving_ns) == ("in split, layer1 to b", 200)
    # Only what leaves work on both devices is a split.
    assert combined(evidence, [moving("PA3", ("layer2", "a"))]) == ()


def test_no_move_has_a_device_run_out_of_memory():
    graph, costs = _layers(300, 200, 100)
    split = on(graph, "split", {"layer2": "b"})
    heavy = graph_of([*map(op, costs), _handle("w", 1, layer="layer1")])
    split = replace(split, device_of={**split.device_of, "w": "a"})
    for memory_bytes, found in ((1, 1), (None, 1), (0, 0)):
        cluster = two_devices(memory_bytes=memory_bytes)
        devices = (replace(cluster.devices[0], memory_bytes=None), cluster.devices[1])
        evidence = evidence_of(
            heavy, costs, split, cluster=replace(cluster, devices=devices), recommended="split"
        )
        move = SplitMove("", {}, with_variables(heavy, ["layer1", "w"], "b"))
        assert len(combined(evidence, [_about("PA1", evidence.splits[0], move)])) == found


def test_variables_crossing_behind_work_or_to_their_own_device_are_not_found():
    graph, costs = _with_variable(500)
    there = dict.fromkeys(("w", "read", "low", "high", "rest"), "b")
    assert _told_of(scope_rules.find_variable_read_across, graph, costs, there) == ()
    graph, costs = _with_variable(1)
    evidence = evidence_of(graph, costs | {"low": 9_000}, on(graph, "halves", {"high": "b"}))
    assert evidence.splits[0].schedule.transfers
    assert told(scope_rules.find_variable_read_across, evidence) == ()


def _wide(size_bytes):
    """Two independent branches that meet: each can run beside the other."""
    graph = graph_of(
        [op("left", 8), op("right", size_bytes), op("meet")], ("left", "meet"), ("right", "meet")
    )
    return graph, {"left": 100, "right": 60, "meet": 10}


def test_a_step_that_waits_for_a_tensor_is_told_of_a_join_that_wins_whatever_copies_cost():
    graph, costs = _wide(200)
    evidence = evidence_of(graph, costs, on(graph, "halves", {"right": "b"}))
    # right 60, on its way 210, meet 10. With meet on b left's 8 bytes cross: 100, 18, 10.
    assert evidence.splits[0].schedule.step_ns == 280
    (finding,) = told(find_waits, evidence)
    assert finding.finding == (
        "75 % of the step of halves waits for transfers (simulated); costliest: right:0 (b → a, "
        "200 B, step waits 210 ns)"
    )
    assert finding.action == "in halves, put op meet on b"
    assert finding.where == {"layer": "right", "op": "right", "tensor": "right:0", "device": "a"}
    assert (finding.saving.step_ns, finding.saving.saving_ns) == (280, 280 - 128)
    # With copies at 1.5 and 1 / 1.5 times that 385 against 137 and 210 against 122 of what ops
    # take, by a tenth more.
    assert finding.saving.low_ns == round(280 * (1 - 122 / 210 * 1.1))
    assert finding.saving.high_ns == round(280 * (1 - 137 / 385 / 1.1))
    # What the split took in a run leaves the share that is simulated.
    run = {"halves": measured_as(560)}
    (beside_run,) = _told_of(find_waits, graph, costs, {"right": "b"}, measured=run)
    assert beside_run.saving == finding.saving
    # 60 + 60 + 10 as it is, 100 + 18 + 10 with meet on b: 2 of 130.
    (finding,) = _told_of(find_waits, *_wide(50), {"right": "b"})
    assert "no single tensor is sure to help" in finding.action
    assert finding.saving is None


def test_a_tensor_of_unknown_size_is_not_called_empty_and_a_hidden_copy_not_waited_for():
    graph, costs = _wide(None)
    # At this latency the step waits for a tensor that is priced as nothing.
    cluster = two_devices(latency_ns=200)
    (finding,) = _told_of(find_waits, graph, costs, {"right": "b"}, cluster=cluster)
    assert "costliest: right:0 (b → a, ?, step waits 200 ns" in finding.finding
    graph, costs = _wide(20)
    evidence = evidence_of(graph, costs, on(graph, "halves", {"right": "b"}))
    assert evidence.splits[0].schedule.step_ns == 110
    assert told(find_waits, evidence) == ()
    names = [f"part{i}" for i in range(8)]
    graph = graph_of([*(op(n, 100) for n in names), op("meet")], *((n, "meet") for n in names))
    costs = dict.fromkeys([*names, "meet"], 10)
    (finding,) = _told_of(find_waits, graph, costs, {"meet": "b"}, "cut")
    assert finding.finding.count("step waits") == 5


def test_a_step_that_waits_for_what_an_op_without_a_kernel_reads():
    # It is placed on a GPU and runs on the host, where nobody who was placed there reads anything.
    cpu_only = frozenset({"CPU"})
    graph = graph_of(
        [op("made", 10**8), op("text", 8, device_kinds=cpu_only), op("last")],
        ("made", "text"), ("text", "last"),
    )  # fmt: skip
    cluster = read_hardware("2xV100-NVLink")
    halves = {"made": "GPU:0", "text": "GPU:1", "last": "GPU:1"}
    evidence = evidence_of(graph, dict.fromkeys(halves, 10), halves, cluster=cluster)
    (finding,) = told(find_waits, evidence)
    assert "made:0 (GPU:0 → CPU:0, 100 MB" in finding.finding


def test_a_split_is_given_up_where_one_device_is_faster_and_no_join_helps():
    graph = graph_of([op("x", 300), op("y", 300), op("u"), op("v")], ("x", "u"), ("y", "v"))
    asked = {"x": "GPU:0", "v": "GPU:0", "y": "GPU:1", "u": "GPU:1"}
    evidence = evidence_of(graph, dict.fromkeys("xyuv", 10), requested_device_of=asked)
    # Two tensors cross in opposite directions, side by side; joined to one, the other still takes
    # 10 + 310 + 10. In turn all take 40.
    assert evidence.splits[0].schedule.step_ns == 330
    (finding,) = told(find_waits, evidence)
    assert finding.action == (
        "give your own split up: it takes 330 ns for a step, one device 40 ns (simulated); if you "
        "keep it, take another split, or faster links: no single tensor is sure to help"
    )
    assert finding.saving.saving_ns == 330 - 40


def _layers(*costs_ns):
    names = [f"layer{i}" for i in range(len(costs_ns))]
    return graph_of([op(name, 1) for name in names]), dict(zip(names, costs_ns, strict=True))


def _told_of_layers(find, costs_ns, *on_b):
    """Return what a rule tells where layers of these costs run, those of these numbers on b."""
    return _told_of(find, *_layers(*costs_ns), {f"layer{i}": "b" for i in on_b}, "split")


def test_an_uneven_load_and_an_idle_device_by_hand():
    # a 500, b 100: 1.67 times the mean. With layer1 on b both take 300.
    (finding,) = _told_of_layers(split_rules.find_uneven_load, (300, 200, 100), 2)
    assert "compute per step a 500 ns, b 100 ns" in finding.finding
    assert finding.action == "in split, put layer layer1 with its gradients and variables on b"
    assert finding.where == {"layer": "layer1", "device": "a"}
    assert finding.saving.saving_ns == 500 - 300
    # b works for 10 of 500, then has nothing left.
    (finding,) = _told_of_layers(split_rules.find_idle_device, (300, 200, 10), 2)
    assert "b computes 10 ns of the 500 ns" in finding.finding
    assert "it has no work left for 98 % of the step" in finding.finding
    # With layer1 there a keeps 300, and b has 210.
    assert (finding.saving.saving_ns, finding.where) == (500 - 300, {"device": "b"})
    (finding,) = _told_of_layers(split_rules.find_idle_device, (300, 200))
    assert finding.finding.endswith("no op that takes time is placed there")
    (finding,) = _told_of_layers(split_rules.find_idle_device, (300,))
    assert finding.action == (
        "in split, try several layers of a on b: no single layer is sure to help there"
    )


@pytest.mark.parametrize(
    ("find", "costs_ns", "on_b"),
    [
        (split_rules.find_uneven_load, (300, 200, 100), (1, 2)),
        # It cannot be more even.
        (split_rules.find_uneven_load, (500, 100), (1,)),
        # An idle device is one finding, not two.
        (split_rules.find_uneven_load, (300, 200, 10), (2,)),
        (split_rules.find_idle_device, (300, 200), (1,)),
    ],
)
def test_a_load_that_is_even_or_cannot_be_or_is_told_otherwise_is_not_found(find, costs_ns, on_b):
    assert _told_of_layers(find, costs_ns, *on_b) == ()


def _holding(activation_bytes, parameter_bytes):
    ops = [_handle("w", parameter_bytes), op("make", activation_bytes), op("use", 1)]
    return graph_of(ops, ("make", "use")), {"make": 10, "use": 10}


def test_a_step_that_does_not_fit_by_hand():
    graph, costs = _holding(600, 300)
    split = on(graph, "apart", {"w": "b"})
    cluster = two_devices(memory_bytes=700)
    growing = growing_of(lambda n: _holding(100 * n, 300)[0], 6, costs, cluster)
    evidence = evidence_of(graph, costs, split, cluster=cluster, batch_size=6, growing=growing)
    (finding,) = told(split_rules.find_does_not_fit, evidence)
    # 300 always, 601 for batch 6: 400 are left, so 3 samples fit.
    assert finding.finding.startswith("single does not fit: on a the step holds 901 B")
    assert finding.action == (
        "use a placement that fits: apart, or take a batch of at most 3 (simulated)"
    )
    assert finding.where == {"layer": "make", "op": "make", "device": "a", "candidate": "single"}
    assert finding.batch_size == 3


def test_the_batch_that_fits_of_pairs_of_samples_is_a_multiple_of_eight_by_hand():
    graph, costs = _holding(4 * 50**2, 300)
    cluster = two_devices(memory_bytes=3_000)
    growing = growing_of(lambda n: _holding(4 * n**2, 300)[0], 50, costs, cluster)
    evidence = evidence_of(graph, costs, cluster=cluster, batch_size=50, growing=growing)
    (finding,) = told(split_rules.find_does_not_fit, evidence)
    # 4 n² + 301 are at most 3,000 up to 25; a line through nothing and 50 would have it at 13.
    assert finding.action == "take a batch of at most 24 (simulated)"


@pytest.mark.parametrize(
    ("activation_bytes", "parameter_bytes", "action"),
    [
        # Of other batches no traces are known.
        (600, 300, "take a smaller batch"),
        # Variables alone are too large.
        (10, 900, "900 B are held all the time"),
    ],
)
def test_where_no_batch_is_known_to_fit_none_is_named(activation_bytes, parameter_bytes, action):
    graph, costs = _holding(activation_bytes, parameter_bytes)
    evidence = evidence_of(graph, costs, cluster=two_devices(memory_bytes=700), batch_size=6)
    (finding,) = told(split_rules.find_does_not_fit, evidence)
    assert finding.action.startswith(action)
    assert finding.batch_size is None


@pytest.mark.parametrize("memory_bytes", [None, 901])
def test_what_fits_and_what_has_no_known_limit_is_not_found(memory_bytes):
    cluster = two_devices(memory_bytes=memory_bytes)
    evidence = evidence_of(*_holding(600, 300), cluster=cluster)
    assert told(split_rules.find_does_not_fit, evidence) == ()


def test_memory_piles_up_on_the_first_device():
    def piled_up(activation_bytes, parameter_bytes, memory_bytes):
        return _told_of(
            split_rules.find_memory_on_first_device,
            *_holding(activation_bytes, parameter_bytes),
            *({"use": "b"}, "split"),
            cluster=two_devices(memory_bytes=memory_bytes),
        )

    (finding,) = piled_up(100, 800, 1_000)
    assert "split: a holds 900 B of its 1.00 kB, no other device more than 101 B" in finding.finding
    assert "w (variable, 800 B)" in finding.action
    # Where a holds 900, b 600 received and 1 of its own, memory is used evenly enough.
    assert piled_up(600, 300, 1_000) == ()
    # Nobody runs short where half of the memory is free, or its size is unknown.
    assert piled_up(100, 800, 2_000) == piled_up(100, 800, None) == ()


def test_the_fastest_split_is_judged_as_measured_where_any_was_and_none_that_failed():
    graph, costs = _layers(300, 200)
    even, lazy = on(graph, "even", {"layer1": "b"}), on(graph, "lazy", {})
    for ran_ns, judged in (
        ({}, "even"),
        ({"even": 900, "lazy": 700}, "lazy"),
        ({"even": 900}, "even"),
    ):
        run = {name: measured_as(step_ns) for name, step_ns in ran_ns.items()}
        evidence = evidence_of(graph, costs, lazy, even, measured=run)
        assert [split.name for split in evidence.splits] == [judged]
    crashed = CandidateFailure(kind=FailureKind.CRASHED, message="")
    assert best_split([replace(c, failure=crashed) for c in evidence.candidates]) is None


def test_replicas_that_compute_something_of_their_own_are_named_by_layer():
    masks = [op(f"drop_{i}", 8, kind="RandomUniform") for i in range(5)]
    graph = graph_of([*masks, op("norm", 8, kind="Mean")])
    costs = {each.name: 10 for each in graph.ops}
    own = ["drop_0", "drop_1", "drop_2", "drop_3", "norm"]
    stack_of = {"drop_0": [("model.py", 3)]}
    evidence = evidence_of(graph, costs, own_of_replicas=own, stack_of=stack_of)
    (finding,) = told(step_rules.find_replicas_differ, evidence)
    assert (
        "each device takes random numbers of its own in drop_0, drop_1, drop_2 and 1 more and "
        "statistics of its own samples in norm" in finding.finding
    )
    assert finding.where == {"layer": "drop_0", "op": "drop_0", "file": "model.py", "line": 3}
    assert finding.saving is None
    graph = graph_of([op("drop", 8, kind="RandomUniform")])
    assert told(step_rules.find_replicas_differ, evidence_of(graph, {"drop": 10})) == ()
