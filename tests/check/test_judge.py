"""Which differences fail, and under which cause: where each rule fires, and where it is silent."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, VERSIONS, cut, layer, record, records

from placement_advisor.check.causes import Limits, Scopes
from placement_advisor.check.check_step import JudgeContext, Judgement, Predicted, judge
from placement_advisor.check.code_lines import from_stacks
from placement_advisor.check.placements import PlacementFreedom
from placement_advisor.check.problems import MAX_CULPRITS, Place, ProblemCode
from placement_advisor.check.record import LayerRecord, Part, PredictedVerdict, with_devices

MOVED = record(
    placed="c0",
    layers={"lower": layer("11", ONE), "upper": layer("22", TWO, backward=ONE)},
    step_us=1_001,
)
OTHER_VERSIONS = {
    "hardware": replace(VERSIONS, hardware="2xV100-NVLink", devices="11ff"),
    "TensorFlow": replace(VERSIONS, tensorflow="2.22.0"),
    "advisor": replace(VERSIONS, advisor="9.9"),
    "other figures of the hardware": replace(VERSIONS, devices="11ff"),
}
HERE, READ, BACK, SETTINGS = (
    Place("m.py", 7),
    Place("m.py", 3),
    Place("m.py", 9),
    Place("pyproject.toml", 4),
)
LINES = replace(
    from_stacks(
        {
            ("lower", Part.FORWARD): [(Place("m.py", 2),)],
            ("upper", Part.FORWARD): [(HERE,)],
            ("upper", Part.BACKWARD): [(BACK,)],
        }
    ),
    readers=({("lower/Relu:0", TWO): READ},),
    on_host={("upper", "AsString"): HERE},
    largest={ONE: Place("m.py", 5)},
)
IN_SCOPES = Scopes(
    device_of={"lower": ONE, "upper": TWO}, gradients_on={}, left_behind=frozenset(), is_split=True
)


def judged(
    after,
    before=record(),  # noqa: B008 - it is frozen
    *,
    freedom=PlacementFreedom.NONE,
    shortages=None,
    scopes=IN_SCOPES,
    put_back=None,
    **limits,
):
    """Judge a step; with the last of what is put back undone it is what ``put_back`` has."""

    def without(moves):
        there = (put_back or {}).get((moves[-1].layer, moves[-1].part), before)
        assert there is not None
        return Predicted(record=there, shortages={})

    setting = JudgeContext(
        limits=Limits(**limits),
        devices=[ONE, TWO],
        alike=ALIKE,
        freedom=freedom,
        scopes=scopes,
        lines=LINES,
        put_back=without,
        configured_at=SETTINGS,
        placed_at=lambda layer: Place("placement.json", len(layer)),
    )
    return judge(before, Predicted(record=after, shortages=shortages or {}), setting)


def changed(**changes):
    """Return a step that is another graph."""
    return record(placed="c0", graph="c1", **changes)


def codes(found):
    """Return the codes of problems, each followed by those of its effects."""
    return [code for problem in found.problems for code in problem.codes]


def test_the_same_step_passes_and_is_not_compared():
    assert judged(record()) == Judgement(problems=(), notes=(), difference=None)


def test_a_step_that_is_the_same_but_for_names_is_not_compared():
    renamed = record(
        layers={"x": layer("11", TWO), "y": layer("22", ONE)}, cuts=(cut("x:0", 7),), copies=9
    )
    assert judged(renamed) == Judgement(problems=(), notes=(), difference=None)


def test_a_graph_that_changed_within_all_tolerances_passes():
    after = changed(step_us=1_050, bytes_across=1_010_000, memory_bytes={
        ONE: {"variables": 945_000_000}, TWO: {"variables": 760_000_000}})  # fmt: skip
    found = judged(after)
    assert (found.problems, found.notes) == ((), ())
    assert found.difference is not None


def test_a_model_that_is_not_locked_says_how_to_lock_it():
    found = judged(record(), None)
    assert codes(found) == [ProblemCode.NOT_LOCKED]
    assert "advisor check --update" in found.problems[0].action


RULE, SEARCH = PlacementFreedom.RULE, PlacementFreedom.SEARCH
FULL_OF_MEMORY = {**record().memory_bytes, ONE: {"variables": 990_000_000}}
NOTHING_CROSSES = {"copies": 0, "cuts": (), "bytes_across": 0}
BOTH_MOVED = {"lower": layer("11", ONE, backward=TWO), "upper": layer("22", TWO, backward=ONE)}


@pytest.mark.parametrize(
    ("after", "settings", "expected"),
    [
        # A model that is not locked is held to its budgets.
        (
            record(),
            {"before": None, "max_transfer_bytes": 999_999, "shortages": {ONE: "GPU:0 is full"}},
            "out-of-memory over-budget not-in-lock-file",
        ),
        # A budget of nothing lets nothing cross.
        (record(), {"max_transfer_bytes": 0}, "over-budget"),
        (record(**NOTHING_CROSSES), {"max_transfer_bytes": 0}, ""),
        # Bytes fail where none crossed, times at a tolerance of nothing.
        (changed(), {"before": record(**NOTHING_CROSSES)}, "more-copies more-bytes-across"),
        (changed(step_us=1_001), {"max_step_regression": 0.0}, "slower-step"),
        (changed(step_us=1_000), {"max_step_regression": 0.0}, ""),
        # Several effects without a known cause are one problem, after the first of them.
        (
            changed(copies=2, bytes_across=9_000_000, step_us=1_200),
            {},
            "slower-step more-copies more-bytes-across",
        ),
        # A move is for the better, or costs nothing, or is blamed for what it costs.
        (replace(MOVED, step_us=1_000), {}, ""),
        (replace(MOVED, step_us=900, copies=2), {}, "layer-moved more-copies"),
        (replace(MOVED, step_us=900, memory_bytes=FULL_OF_MEMORY), {}, "layer-moved more-memory"),
        (replace(MOVED, layers=BOTH_MOVED), {}, "layer-moved"),
        # Where times do not compare a move is for the better if less crosses.
        (replace(MOVED, tensorflow="2.22.0", step_us=900), {}, "layer-moved"),
        (replace(MOVED, tensorflow="2.22.0", bytes_across=999_999), {}, ""),
        # A rule that goes by names can place the same ops worse where only names have changed.
        (replace(MOVED, copies=9, step_us=1_200), {"freedom": RULE}, "slower-step more-copies"),
        (replace(MOVED, copies=9), {}, "layer-moved more-copies"),
        # A search may copy more for a faster step, but not for a slower one or an unknown one.
        (replace(MOVED, copies=9), {"freedom": SEARCH}, ""),
        (changed(copies=2), {"freedom": SEARCH}, ""),
        (changed(copies=2, tensorflow="2.22.0"), {"freedom": SEARCH}, "more-copies"),
        (changed(copies=2, step_us=2_000), {"freedom": SEARCH}, "slower-step more-copies"),
    ],
)
def test_what_fails(after, settings, expected):
    assert codes(judged(after, **settings)) == expected.split()


def test_layers_on_devices_of_other_names_have_not_moved_and_one_of_them_has():
    names = {ONE: "CPU:0", TWO: "CPU:1"}
    before = with_devices(record(), names)
    stayed = judged(changed(), before)
    assert (stayed.problems, stayed.difference and stayed.difference.moves) == ((), ())
    (note,) = stayed.notes
    assert (
        note == "devices of other names, which is no change: CPU:0 is GPU:0 now, CPU:1 is GPU:1 now"
    )
    moved = judged(MOVED, before)
    assert [note] == list(moved.notes)
    assert [problem.culprits[0] for problem in moved.problems] == [
        "backward pass of upper: GPU:1 -> GPU:0 (m.py:9)"
    ]


def test_a_backward_pass_that_lost_its_device_is_the_finding_with_its_line():
    left = replace(IN_SCOPES, left_behind=frozenset({TWO}))
    (problem,) = judged(MOVED, scopes=left).problems
    assert problem.code == "PA101"
    assert problem.what == (
        "the backward pass of 1 layer has left GPU:1: its ops have no device and run on GPU:0"
    )
    assert problem.culprits == ("backward pass of upper: GPU:1 -> GPU:0 (m.py:9)",)
    assert problem.place == BACK
    assert "tf.gradients" in problem.action


def test_a_backward_pass_in_a_scope_of_its_own_is_not_said_to_have_no_device():
    scoped = replace(IN_SCOPES, left_behind=frozenset({TWO}), gradients_on={"upper": ONE})
    (problem,) = judged(MOVED, scopes=scoped).problems
    assert problem.code == "PA101"
    assert problem.what == (
        "the backward pass of 1 layer has left GPU:1: its gradients are taken in a tf.device scope "
        "of GPU:0"
    )


def test_a_backward_pass_that_a_scope_put_elsewhere_is_not_the_finding():
    (problem,) = judged(MOVED).problems
    assert problem.code is ProblemCode.MOVED
    assert problem.what == "1 layer runs on another device than before"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"lower": ONE}, "1 layer stands in no tf.device scope any more: it runs on GPU:0, not"),
        (
            {"lower": ONE, "upper": ONE},
            "1 layer stands in another tf.device scope: it runs on GPU:0",
        ),
    ],
)
def test_a_forward_pass_that_moved_has_lost_its_scope_or_got_another(asked, said):
    after = replace(MOVED, layers={"lower": layer("11", ONE), "upper": layer("22", ONE)})
    scopes = Scopes(device_of=asked, gradients_on={}, left_behind=frozenset(), is_split=True)
    (problem,) = judged(after, scopes=scopes).problems
    assert problem.code is ProblemCode.SCOPE_CHANGED
    assert problem.what.startswith(said)
    assert problem.culprits == ("upper: GPU:1 -> GPU:0 (m.py:7)",)
    assert problem.place == HERE


def test_a_backward_pass_whose_forward_pass_stays_at_its_variable_moved_with_its_scope():
    # A lookup reads its table where that is; its scope went elsewhere, with its gradient.
    stays = {"lower": layer("11", ONE), "side": layer("44", TWO)}
    layers = {**stays, "upper": layer("22", TWO, backward=ONE)}
    before = record(layers={**stays, "upper": layer("22", TWO), "top": layer("33", TWO)})
    after = replace(MOVED, layers={**layers, "top": layer("33", ONE)})
    scopes = Scopes(
        device_of={**dict.fromkeys(("lower", "upper", "top"), ONE), "side": TWO},
        gradients_on={},
        left_behind=frozenset(),
        is_split=True,
    )
    (problem,) = judged(after, before, scopes=scopes).problems
    assert problem.code is ProblemCode.SCOPE_CHANGED
    assert problem.what == (
        "1 layer stands in another tf.device scope: it runs on GPU:0, not on GPU:1"
    )
    assert "backward pass of upper: GPU:1 -> GPU:0 (m.py:9)" in problem.culprits


def test_variables_alone_that_moved_were_created_in_another_scope():
    def with_variables(device):
        held = replace(layer("22", TWO), variables=(device,))
        return replace(MOVED, layers={"lower": layer("11", ONE), "upper": held})

    before = replace(with_variables(TWO), placed="b0", step_us=1_000)
    (problem,) = judged(with_variables(ONE), before).problems
    assert problem.code is ProblemCode.SCOPE_CHANGED
    assert problem.what == "the variables of 1 layer are created for GPU:0, not for GPU:1"


def test_a_layer_that_follows_its_variable_has_kept_its_scope():
    lower = record().layers["lower"]
    before, after = (
        record(
            placed=device,
            layers={
                "lower": lower,
                "upper": LayerRecord(
                    forward=(device,), variables=(device,), fingerprint="22", busy_us=100
                ),
            },
            step_us=step_us,
        )
        for device, step_us in ((TWO, 1_000), (ONE, 1_001))
    )
    (problem,) = judged(after, before).problems
    assert problem.what == "the variables of 1 layer are created for GPU:0, not for GPU:1"


def test_a_layer_that_a_placement_file_has_elsewhere_points_at_the_file():
    (problem,) = judged(MOVED, scopes=None).problems
    assert problem.code is ProblemCode.PLACEMENT_CHANGED
    assert problem.place == Place("placement.json", len("upper"))
    (other,) = judged(replace(MOVED, graph="c1"), scopes=None).problems
    assert other.code is ProblemCode.MOVED


def test_effects_stand_under_the_cause_without_which_they_are_gone():
    after = replace(MOVED, copies=3, step_us=1_200)
    (problem,) = judged(after, put_back={}).problems
    assert codes(judged(after)) == [ProblemCode.MOVED, ProblemCode.SLOWER, ProblemCode.COPIES]
    assert [effect.what for effect in problem.effects] == [
        "the predicted step takes 20.0% longer (1.00 ms -> 1.20 ms, 5% are allowed)",
        "+2 copies per step (1 -> 3)",
    ]


@pytest.mark.parametrize(("left", "is_gone"), [(1, True), (2, False), (3, False)])
def test_an_effect_is_gone_where_less_than_half_of_it_is_left(left, is_gone):
    layers = {"lower": layer("12", ONE), "upper": layer("22", TWO, backward=ONE)}
    after = replace(MOVED, graph="c1", layers=layers, copies=1 + 4)
    without = record(copies=1 + left)
    found = judged(after, put_back={("upper", Part.BACKWARD): without})
    has_it = next(each.code for each in found.problems if ProblemCode.COPIES in each.codes)
    assert has_it is (ProblemCode.MOVED if is_gone else ProblemCode.LAYERS_CHANGED)


def test_an_effect_that_stays_with_layers_put_back_comes_from_layers_that_changed():
    layers = {"lower": layer("12", ONE, busy_us=300), "upper": layer("22", TWO, backward=ONE)}
    after = replace(MOVED, graph="c1", layers=layers, copies=3, step_us=1_200)
    slower = record(step_us=1_190)
    moved, heavier = judged(after, put_back={("upper", Part.BACKWARD): slower}).problems
    assert moved.codes == (ProblemCode.MOVED, ProblemCode.COPIES)
    assert heavier.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER)
    assert heavier.what == "lower is made of other ops or sizes"
    assert heavier.culprits == ("lower +200 µs (m.py:2)",)
    assert heavier.place == Place("m.py", 2)


def test_of_two_causes_each_has_the_effects_that_it_makes_most_of():
    others = {"a": layer("33", ONE), "b": layer("44", ONE), "c": layer("55", ONE)}
    before = record(layers={**record().layers, **others})
    layers = {"lower": layer("11", TWO), "upper": layer("22", TWO, backward=ONE), **others}
    left = replace(IN_SCOPES, left_behind=frozenset({TWO}), device_of={"upper": TWO})
    after = replace(MOVED, layers=layers, copies=5, step_us=1_300)
    # Without the move of `lower` the step is as fast as it was; copies need both put back.
    first = replace(before, copies=4, step_us=1_010)
    found = judged(after, before, scopes=left, put_back={("lower", Part.BACKWARD): first})
    assert [problem.codes for problem in found.problems] == [
        (ProblemCode.SCOPE_CHANGED, ProblemCode.SLOWER),
        (ProblemCode.BACKWARD_LEFT, ProblemCode.COPIES),
    ]


def test_an_effect_that_nothing_else_explains_is_of_the_layers_that_moved():
    after = replace(MOVED, copies=3)
    found = judged(after, put_back={("upper", Part.BACKWARD): after})
    assert [problem.codes for problem in found.problems] == [
        (ProblemCode.MOVED, ProblemCode.COPIES)
    ]


def test_a_move_for_the_better_is_only_told():
    found = judged(replace(MOVED, step_us=900))
    assert found.problems == ()
    assert found.notes[0].startswith("moved: backward pass of upper")


@pytest.mark.parametrize("freedom", [PlacementFreedom.RULE, PlacementFreedom.SEARCH])
def test_a_rule_or_a_search_may_move_layers(freedom):
    found = judged(replace(MOVED, graph="c1"), freedom=freedom)
    assert found.problems == ()
    assert found.notes


def test_the_same_ops_in_other_layers_are_not_said_to_be_other_ops():
    regrouped = {"lower": layer("12", ONE), "upper": layer("21", TWO)}
    (problem,) = judged(
        record(placed="b1", layers=regrouped, copies=9), freedom=PlacementFreedom.RULE
    ).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.COPIES)
    assert problem.what == (
        "the step has the same ops, grouped into other layers; lower, upper are cut otherwise"
    )


def test_another_placement_in_the_settings_is_compared():
    assert judged(record(placement="towers")).difference is not None


@pytest.mark.parametrize("freedom", [PlacementFreedom.NONE, PlacementFreedom.RULE])
def test_another_placement_in_the_settings_that_is_worse_is_the_cause(freedom):
    after = replace(MOVED, placement="towers", step_us=1_200)
    (problem,) = judged(after, freedom=freedom).problems
    assert problem.codes == (ProblemCode.PLACEMENT_CHANGED, ProblemCode.SLOWER)
    assert problem.what == "the placement is towers, and was as-written"
    assert problem.place == SETTINGS


def test_more_copies_fail_and_fewer_are_told():
    more = changed(copies=3, cuts=(cut("lower/Relu:0", 1_000_000), cut("lower/Relu:0", 500)))
    (problem,) = judged(more).problems
    assert problem.code is ProblemCode.COPIES
    assert problem.what == "+2 copies per step (1 -> 3)"
    assert problem.culprits == ("lower/Relu:0 GPU:0 -> GPU:1 +500 B (m.py:3)",)
    assert problem.place == READ
    fewer = judged(changed(copies=0, cuts=()))
    assert (fewer.problems, fewer.notes) == ((), ("better: -1 copies per step",))


def test_bytes_across_have_a_tolerance():
    assert codes(judged(changed(bytes_across=1_010_000))) == []
    (problem,) = judged(changed(bytes_across=1_010_001)).problems
    assert problem.code is ProblemCode.BYTES
    assert problem.what == "+10.0 kB across devices per step (1.00 MB -> 1.01 MB)"
    assert judged(changed(bytes_across=500_000)).notes == ("better: -500 kB across per step",)


def test_a_tensor_of_unknown_size_is_said_to_be_one():
    (problem,) = judged(changed(copies=2, cuts=(*record().cuts, cut("b", None)))).problems
    assert problem.culprits == ("b GPU:0 -> GPU:1 of unknown size",)


def test_a_slower_step_fails_beyond_its_tolerance_and_names_what_grew():
    layers = {"lower": layer("11", ONE), "upper": layer("23", TWO, busy_us=160)}
    assert codes(judged(changed(step_us=1_050))) == []
    (problem,) = judged(changed(step_us=1_060, layers=layers)).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER)
    assert problem.effects[0].what == (
        "the predicted step takes 6.0% longer (1.00 ms -> 1.06 ms, 5% are allowed)"
    )
    assert problem.culprits == ("upper +60.0 µs (m.py:7)",)
    assert problem.place == HERE
    assert codes(judged(changed(step_us=1_060), max_step_regression=0.06)) == []
    faster = judged(changed(step_us=900))
    assert faster.notes == ("better: the predicted step takes 10.0% less (1.00 ms -> 900 µs)",)


def test_a_change_of_all_layers_is_told_as_one():
    layers = {"lower": layer("12", ONE, busy_us=200), "upper": layer("23", TWO)}
    (problem,) = judged(changed(step_us=1_200, layers=layers)).problems
    assert problem.what == "all 2 layers are made of other ops or sizes, as by another batch"
    (alone,) = judged(
        changed(step_us=1_200, layers={"lower": layers["lower"]}),
        record(layers={"lower": record().layers["lower"]}),
    ).problems
    assert alone.what == "lower is made of other ops or sizes"


def test_a_rule_is_blamed_on_names_only_where_a_name_is_gone():
    renamed = {"low": layer("11", ONE), "upper": layer("23", TWO, busy_us=300)}
    (problem,) = judged(
        changed(step_us=1_200, layers=renamed), freedom=PlacementFreedom.RULE
    ).problems
    assert problem.what == "upper is made of other ops or sizes"
    assert "name scope" not in problem.action


def test_what_crosses_is_to_blame_where_layers_hardly_take_longer():
    layers = {"lower": layer("11", ONE), "upper": layer("23", TWO, busy_us=101)}
    cuts = (cut("lower/Relu:0", 9_000_000),)
    after = changed(step_us=1_200, layers=layers, cuts=cuts, bytes_across=9_000_000)
    (problem,) = judged(after).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER, ProblemCode.BYTES)
    assert problem.place == READ


def test_a_name_scope_that_is_gone_is_the_cause_where_a_rule_goes_by_names():
    after = changed(step_us=1_658, layers={"lower": layer("11", ONE), "": layer("22", ONE)})
    (problem,) = judged(after, freedom=PlacementFreedom.RULE).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER)
    assert problem.what == "upper is in no name scope any more"
    assert problem.culprits[0] == "ops of no layer: GPU:1 -> GPU:0"
    assert "name scope" in problem.action


def test_more_memory_fails_on_the_device_that_needs_it():
    held = {"variables": 900_000_000, "activations": 50_000_000}
    (problem,) = judged(changed(memory_bytes={**record().memory_bytes, ONE: held})).problems
    assert problem.code is ProblemCode.MEMORY
    assert problem.what == (
        "GPU:0: +50.0 MB of peak memory (900 MB -> 950 MB), above all activations"
    )
    assert problem.culprits == ("+50.0 MB activations",)
    assert problem.place == Place("m.py", 5)
    less = judged(changed(memory_bytes={**record().memory_bytes, ONE: {"variables": 1}}))
    assert less.notes == ("better: GPU:0 has a peak of 1 B, not 900 MB",)


def test_an_op_without_a_kernel_fails():
    (problem,) = judged(changed(on_host={"upper": ("AsString",)})).problems
    assert problem.code is ProblemCode.NO_KERNEL
    assert problem.what == (
        "AsString in upper is placed on a GPU, which has no kernel for it: it runs on the host"
    )
    assert problem.place == HERE


def test_what_an_op_without_a_kernel_costs_stands_under_it():
    after = changed(on_host={"upper": ("AsString", "Hash")}, copies=3, step_us=1_100)
    (problem,) = judged(after).problems
    assert problem.codes == (ProblemCode.NO_KERNEL, ProblemCode.SLOWER, ProblemCode.COPIES)
    assert problem.what.startswith("AsString, Hash in upper are placed on a GPU")


def test_a_verdict_that_fell_fails_and_one_that_rose_is_told():
    fell = changed(standing=PredictedVerdict.SINGLE, single_step_us=1_000)
    (problem,) = judged(fell).problems
    assert problem.code is ProblemCode.STANDING
    assert problem.what == (
        "the placement was predicted to be faster than one device, now no faster than one "
        "device: 1.00 ms against 1.00 ms on one device"
    )
    rose = judged(changed(), record(standing=PredictedVerdict.CANNOT_TELL))
    assert rose.problems == ()
    assert "now faster than one device" in rose.notes[0]


def test_a_verdict_that_fell_by_a_hair_is_told():
    found = judged(changed(standing=PredictedVerdict.CANNOT_TELL, single_step_us=1_490))
    assert found.problems == ()
    assert "within doubt of one device" in found.notes[0]


def test_memory_that_does_not_suffice_fails_whatever_was_locked():
    found = judged(record(), shortages={ONE: "GPU:0 needs 20 GB, has 16"})
    assert codes(found) == [ProblemCode.OUT_OF_MEMORY]
    assert found.problems[0].what == "GPU:0 needs 20 GB, has 16"
    assert found.problems[0].place == Place("m.py", 5)


def test_a_limit_that_an_edit_breaks_is_its_effect_and_one_that_was_broken_is_not():
    more = {**record().memory_bytes, ONE: {"variables": 990_000_000}}
    after = replace(MOVED, memory_bytes=more)
    limits = {"shortages": {ONE: "GPU:0 is full"}, "max_transfer_bytes": 5}
    moved, budget = judged(after, **limits).problems
    assert budget.codes == (ProblemCode.OVER_BUDGET,)
    assert moved.codes == (ProblemCode.MOVED, ProblemCode.MEMORY, ProblemCode.OUT_OF_MEMORY)


def test_budgets_hold_to_the_byte_whatever_was_locked():
    assert codes(judged(record(), max_transfer_bytes=1_000_000, max_peak_bytes=900_000_000)) == []
    transfer, memory = judged(
        record(), max_transfer_bytes=999_999, max_peak_bytes=899_999_999
    ).problems
    assert transfer.culprits == ("lower/Relu:0 GPU:0 -> GPU:1 1.00 MB",)
    assert memory.what == "GPU:0 needs 900 MB of memory, max_peak_memory is 900 MB"
    assert memory.culprits == ("900 MB variables",)


@pytest.mark.parametrize("what", OTHER_VERSIONS)
def test_times_of_other_versions_are_not_compared_and_all_else_is(what):
    versions = asdict(OTHER_VERSIONS[what])
    slower = changed(**versions, step_us=9_000, standing=PredictedVerdict.SINGLE)
    found = judged(slower)
    assert found.problems == ()
    assert found.notes[0].startswith("predicted times are not comparable: locked with ")
    assert what in found.notes[0]
    assert "`advisor check --update`" in found.notes[0]
    newer = judged(changed(tensorflow="2.22.0"))
    assert "locked with TensorFlow 2.21.0, now 2.22.0. All else" in newer.notes[0]
    worse = replace(
        MOVED, **versions, copies=2, bytes_across=9_000_000,
        memory_bytes={ONE: {"variables": 9_000_000_000}, TWO: {}},
    )  # fmt: skip
    assert codes(judged(worse)) == [
        ProblemCode.MOVED,
        ProblemCode.COPIES,
        ProblemCode.BYTES,
        ProblemCode.MEMORY,
    ]
    assert codes(judged(record(**versions), max_transfer_bytes=5)) == [ProblemCode.OVER_BUDGET]


def test_no_more_culprits_are_named_than_anyone_reads():
    cuts = tuple(cut(f"t{i}", 100 - i) for i in range(12))
    (problem,) = judged(changed(copies=13, cuts=(*record().cuts, *cuts))).problems
    assert len(problem.culprits) == MAX_CULPRITS + 1
    assert problem.culprits[-1] == "7 more"


def test_renamed_layers_are_told():
    after = changed(layers={"below": layer("11", ONE), "upper": layer("22", TWO)})
    assert judged(after).notes == ("renamed, which is no change: lower is below now",)


@given(records, records, st.sampled_from(PlacementFreedom))
def test_any_two_records_can_be_judged(before, after, freedom):
    found = judged(after, before, freedom=freedom)
    assert all(problem.what and problem.action for problem in found.problems)


@given(records, st.sampled_from(PlacementFreedom))
def test_no_step_fails_against_itself(found, freedom):
    assert judged(found, found, freedom=freedom).problems == ()
    # Nor as another graph of which nothing is known but that all else is the same.
    assert judged(replace(found, placed="?", graph="?"), found, freedom=freedom).problems == ()
