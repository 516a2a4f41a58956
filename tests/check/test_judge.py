"""Which differences fail, and under which cause: where each rule fires, and where it is silent."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, VERSIONS, cut, layer, record, records

from placement_advisor.check.causes import Limits, Scopes
from placement_advisor.check.code_lines import from_stacks
from placement_advisor.check.judgement import JudgeContext, Judgement, Predicted, judge
from placement_advisor.check.lock_record import Part, PredictedVerdict, with_devices
from placement_advisor.check.placements import PlacementFreedom
from placement_advisor.check.problem_codes import MAX_CULPRITS, Place, ProblemCode

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
HERE, READ, BACK = (Place("m.py", line) for line in (7, 3, 9))
SETTINGS = Place("pyproject.toml", 4)
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
    return record(placed="c0", graph="c1", **changes)


def codes(found):
    """Return the codes of problems, each followed by those of its effects."""
    return [code for problem in found.problems for code in problem.codes]


def test_a_step_that_is_the_same_but_for_names_passes_and_is_not_compared():
    layers = {"x": layer("11", TWO), "y": layer("22", ONE)}
    renamed = record(layers=layers, cuts=(cut("x:0", 7),), copies=9)
    for same in (record(), renamed):
        assert judged(same) == Judgement(problems=(), notes=(), difference=None)
    assert judged(record(placement="towers")).difference is not None


def test_a_graph_that_changed_within_all_tolerances_passes():
    memory_bytes = {ONE: {"variables": 945_000_000}, TWO: {"variables": 760_000_000}}
    found = judged(changed(step_us=1_050, bytes_across=1_010_000, memory_bytes=memory_bytes))
    assert (found.problems, found.notes) == ((), ())
    assert found.difference is not None


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
        (changed(step_us=1_060), {"max_step_regression": 0.06}, ""),
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
    before = with_devices(record(), {ONE: "CPU:0", TWO: "CPU:1"})
    stayed = judged(changed(), before)
    assert (stayed.problems, stayed.difference and stayed.difference.moves) == ((), ())
    (note,) = stayed.notes
    names = "CPU:0 is GPU:0 now, CPU:1 is GPU:1 now"
    assert note == f"devices of other names, which changes nothing: {names}"
    moved = judged(MOVED, before)
    assert [note] == list(moved.notes)
    assert [problem.culprits for problem in moved.problems] == [(MOVED_BACK,)]


MOVED_BACK = "backward pass of upper: GPU:1 -> GPU:0 (m.py:9)"
LEFT = replace(IN_SCOPES, left_behind=frozenset({TWO}))
LOST_FORWARD = replace(MOVED, layers={"lower": layer("11", ONE), "upper": layer("22", ONE)})
# A lookup reads its table where that is; its scope went elsewhere, with its gradient.
STAYS = {"lower": layer("11", ONE), "side": layer("44", TWO)}
LOOKUP = record(layers={**STAYS, "upper": layer("22", TWO), "top": layer("33", TWO)})
LOOKED_UP = replace(
    MOVED, layers={**STAYS, "upper": layer("22", TWO, backward=ONE), "top": layer("33", ONE)}
)
HEAVIER = layer("12", ONE, busy_us=200)
CREATED_ELSEWHERE = "the variables of 1 layer are created for GPU:0, not for GPU:1"


def asked(**device_of):
    return replace(IN_SCOPES, device_of=device_of)


def of_upper(device, forward=TWO, **changes):
    """Return a step whose upper layer has its variables on a device."""
    held = replace(layer("22", forward), backward=None, variables=(device,))
    return record(placed=device, layers={"lower": layer("11", ONE), "upper": held}, **changes)


@pytest.mark.parametrize(
    ("after", "settings", "has", "what", "culprit", "place"),
    [
        (MOVED, {"scopes": LEFT}, "PA101",
         "the backward pass of 1 layer has left GPU:1: its ops have no device and run on GPU:0",
         MOVED_BACK, BACK),
        (MOVED, {"scopes": replace(LEFT, gradients_on={"upper": ONE})}, "PA101",
         "the backward pass of 1 layer has left GPU:1: its gradients are taken in a tf.device "
         "scope of GPU:0", MOVED_BACK, BACK),
        # A scope put it elsewhere.
        (MOVED, {}, "layer-moved", "1 layer runs on another device than before", MOVED_BACK, BACK),
        (LOST_FORWARD, {"scopes": asked(lower=ONE)}, "scope-changed",
         "1 layer stands in no tf.device scope any more: it runs on GPU:0, not",
         "upper: GPU:1 -> GPU:0 (m.py:7)", HERE),
        (LOST_FORWARD, {"scopes": asked(lower=ONE, upper=ONE)}, "scope-changed",
         "1 layer stands in another tf.device scope: it runs on GPU:0",
         "upper: GPU:1 -> GPU:0 (m.py:7)", HERE),
        (LOOKED_UP, {"before": LOOKUP, "scopes": asked(lower=ONE, upper=ONE, top=ONE, side=TWO)},
         "scope-changed",
         "1 layer stands in another tf.device scope: it runs on GPU:0, not on GPU:1", MOVED_BACK,
         None),
        # Variables alone, and a layer that follows its variable and has kept its scope.
        (of_upper(ONE, step_us=1_001), {"before": of_upper(TWO)}, "scope-changed",
         CREATED_ELSEWHERE, None, None),
        (of_upper(ONE, ONE, step_us=1_001), {"before": of_upper(TWO)}, "scope-changed",
         CREATED_ELSEWHERE, None, None),
        # A placement file has it elsewhere, if the model is the same.
        (MOVED, {"scopes": None}, "placement-changed", "", None,
         Place("placement.json", len("upper"))),
        (replace(MOVED, graph="c1"), {"scopes": None}, "layer-moved", "", None, None),
        # A tensor of unknown size is said to be one.
        (changed(copies=2, cuts=(*record().cuts, cut("b", None))), {}, "more-copies", "",
         "b GPU:0 -> GPU:1 of unknown size", None),
        (changed(copies=3, cuts=(*record().cuts, cut("lower/Relu:0", 500))), {}, "more-copies",
         "+2 copies per step (1 -> 3)", "lower/Relu:0 GPU:0 -> GPU:1 +500 B (m.py:3)", READ),
        (changed(bytes_across=1_010_001), {}, "more-bytes-across",
         "+10.0 kB across devices per step (1.00 MB -> 1.01 MB)", None, None),
        (changed(memory_bytes={
            **record().memory_bytes, ONE: {"variables": 900_000_000, "activations": 50_000_000}}),
         {}, "more-memory",
         "GPU:0: +50.0 MB of peak memory (900 MB -> 950 MB), above all activations",
         "+50.0 MB activations", Place("m.py", 5)),
        (changed(on_host={"upper": ("AsString",)}), {}, "no-gpu-kernel",
         "AsString in upper is placed on a GPU, which has no kernel for it: it runs on the host",
         None, HERE),
        (changed(standing=PredictedVerdict.SINGLE, single_step_us=1_000), {}, "verdict-changed",
         "the placement was predicted to be faster than one device, now no faster than one "
         "device: 1.00 ms against 1.00 ms on one device", None, None),
        (record(), {"shortages": {ONE: "GPU:0 needs 20 GB, has 16"}}, "out-of-memory",
         "GPU:0 needs 20 GB, has 16", None, Place("m.py", 5)),
        # A slower step names what grew.
        (changed(step_us=1_060, layers={
            "lower": layer("11", ONE), "upper": layer("23", TWO, busy_us=160)}),
         {}, "layers-changed slower-step", "upper is made of other ops or sizes",
         "upper +60.0 µs (m.py:7)", HERE),
        # A change of all layers is told as one, but for a step of one layer.
        (changed(step_us=1_200, layers={"lower": HEAVIER, "upper": layer("23", TWO)}), {},
         "layers-changed slower-step",
         "all 2 layers are made of other ops or sizes, as by another batch", None, None),
        (changed(step_us=1_200, layers={"lower": HEAVIER}),
         {"before": record(layers={"lower": layer("11", ONE)})},
         "layers-changed slower-step", "lower is made of other ops or sizes", None, None),
        # The same ops in other layers are not said to be other ops.
        (record(placed="b1", copies=9, layers={
            "lower": layer("12", ONE), "upper": layer("21", TWO)}),
         {"freedom": RULE}, "layers-changed more-copies",
         "the step has the same ops, grouped into other layers; lower, upper are cut otherwise",
         None, None),
        # Another placement in the settings is to blame, whatever freedom it has.
        *((replace(MOVED, placement="towers", step_us=1_200), {"freedom": freedom},
           "placement-changed slower-step", "the placement is towers, and was as-written", None,
           SETTINGS) for freedom in (PlacementFreedom.NONE, RULE)),
    ],
)  # fmt: skip
def test_a_problem_has_its_codes_its_words_its_culprit_and_its_place(
    after, settings, has, what, culprit, place
):
    (problem,) = judged(after, **settings).problems
    assert problem.codes == tuple(has.split())
    assert problem.what.startswith(what)
    assert culprit is None or culprit in problem.culprits
    assert place is None or problem.place == place
    assert problem.action


IN_DOUBT = {"standing": PredictedVerdict.CANNOT_TELL}


@pytest.mark.parametrize(
    ("after", "settings", "note"),
    [
        (changed(copies=0, cuts=()), {}, "better: -1 copies per step"),
        (changed(bytes_across=500_000), {}, "better: -500 kB across per step"),
        (
            changed(step_us=900),
            {},
            "better: the predicted step takes 10.0% less (1.00 ms -> 900 µs)",
        ),
        (
            changed(memory_bytes={**record().memory_bytes, ONE: {"variables": 1}}),
            {},
            "better: GPU:0 has a peak of 1 B, not 900 MB",
        ),
        # A verdict that rose, or fell by a hair.
        (changed(), {"before": record(**IN_DOUBT)}, "now faster than one device"),
        (changed(**IN_DOUBT, single_step_us=1_490), {}, "within doubt of one device"),
        (replace(MOVED, step_us=900), {}, "moved: backward pass of upper"),
        (replace(MOVED, graph="c1"), {"freedom": RULE}, "moved: backward pass of upper"),
        (replace(MOVED, graph="c1"), {"freedom": SEARCH}, "moved: backward pass of upper"),
        (
            changed(layers={"below": layer("11", ONE), "upper": layer("22", TWO)}),
            {},
            "renamed, which changes nothing: lower is below now",
        ),
    ],
)
def test_what_is_no_problem_is_told(after, settings, note):
    found = judged(after, **settings)
    assert found.problems == ()
    assert note in found.notes[0]


def test_effects_stand_under_the_cause_without_which_they_are_gone():
    after = replace(MOVED, copies=3, step_us=1_200)
    (problem,) = judged(after, put_back={}).problems
    assert codes(judged(after)) == [ProblemCode.MOVED, ProblemCode.SLOWER, ProblemCode.COPIES]
    assert [effect.what for effect in problem.effects] == [
        "the predicted step takes 20.0% longer (1.00 ms -> 1.20 ms, 5% are allowed)",
        "+2 copies per step (1 -> 3)",
    ]
    after = replace(MOVED, copies=3)
    (problem,) = judged(after, put_back={("upper", Part.BACKWARD): after}).problems
    assert problem.codes == (ProblemCode.MOVED, ProblemCode.COPIES)
    after = changed(on_host={"upper": ("AsString", "Hash")}, copies=3, step_us=1_100)
    (problem,) = judged(after).problems
    assert problem.codes == (ProblemCode.NO_KERNEL, ProblemCode.SLOWER, ProblemCode.COPIES)
    assert problem.what.startswith("AsString, Hash in upper are placed on a GPU")
    after = replace(MOVED, memory_bytes=FULL_OF_MEMORY)
    limits = {"shortages": {ONE: "GPU:0 is full"}, "max_transfer_bytes": 5}
    moved, budget = judged(after, **limits).problems
    assert budget.codes == (ProblemCode.OVER_BUDGET,)
    assert moved.codes == (ProblemCode.MOVED, ProblemCode.MEMORY, ProblemCode.OUT_OF_MEMORY)


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


def test_other_ops_or_what_crosses_are_to_blame_or_a_name_that_is_gone_under_a_rule():
    renamed = {"low": layer("11", ONE), "upper": layer("23", TWO, busy_us=300)}
    (problem,) = judged(changed(step_us=1_200, layers=renamed), freedom=RULE).problems
    assert problem.what == "upper is made of other ops or sizes"
    assert "name scope" not in problem.action
    layers = {"lower": layer("11", ONE), "upper": layer("23", TWO, busy_us=101)}
    cuts = (cut("lower/Relu:0", 9_000_000),)
    after = changed(step_us=1_200, layers=layers, cuts=cuts, bytes_across=9_000_000)
    (problem,) = judged(after).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER, ProblemCode.BYTES)
    assert problem.place == READ
    after = changed(step_us=1_658, layers={"lower": layer("11", ONE), "": layer("22", ONE)})
    (problem,) = judged(after, freedom=RULE).problems
    assert problem.codes == (ProblemCode.LAYERS_CHANGED, ProblemCode.SLOWER)
    assert problem.what == "upper is in no name scope any more"
    assert problem.culprits[0] == "ops of no layer: GPU:1 -> GPU:0"
    assert "name scope" in problem.action


def test_budgets_hold_to_the_byte_and_no_more_culprits_are_named_than_anyone_reads():
    assert codes(judged(record(), max_transfer_bytes=1_000_000, max_peak_bytes=900_000_000)) == []
    budgets = {"max_transfer_bytes": 999_999, "max_peak_bytes": 899_999_999}
    transfer, memory = judged(record(), **budgets).problems
    assert transfer.culprits == ("lower/Relu:0 GPU:0 -> GPU:1 1.00 MB",)
    assert memory.what == "GPU:0 needs 900 MB of memory, max_peak_memory is 900 MB"
    assert memory.culprits == ("900 MB variables",)
    held = {ONE: {"gradients": 300_000_000, "variables": 900_000_000}}
    (memory,) = judged(record(memory_bytes=held), max_peak_bytes=10**9).problems
    assert memory.culprits == ("900 MB variables", "300 MB gradients")
    cuts = tuple(cut(f"t{i}", 100 - i) for i in range(12))
    (problem,) = judged(changed(copies=13, cuts=(*record().cuts, *cuts))).problems
    assert len(problem.culprits) == MAX_CULPRITS + 1
    assert problem.culprits[-1] == "7 more"


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
    assert "with TensorFlow 2.21.0, now 2.22.0. The check enforces all else" in newer.notes[0]
    worse = replace(
        MOVED, **versions, copies=2, bytes_across=9_000_000,
        memory_bytes={ONE: {"variables": 9_000_000_000}, TWO: {}},
    )  # fmt: skip
    found = " ".join(codes(judged(worse)))
    assert found == "layer-moved more-copies more-bytes-across more-memory"
    assert codes(judged(record(**versions), max_transfer_bytes=5)) == [ProblemCode.OVER_BUDGET]


@given(records, records, st.sampled_from(PlacementFreedom))
def test_any_two_records_can_be_judged(before, after, freedom):
    found = judged(after, before, freedom=freedom)
    assert all(problem.what and problem.action for problem in found.problems)


@given(records, st.sampled_from(PlacementFreedom))
def test_no_step_fails_against_itself(found, freedom):
    assert judged(found, found, freedom=freedom).problems == ()
    # Nor as another graph of which nothing is known but that all else is the same.
    assert judged(replace(found, placed="?", graph="?"), found, freedom=freedom).problems == ()
