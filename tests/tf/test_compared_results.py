"""How results of steps are stored, compared, and merged from shares of the batch."""

import math
import pickle
import zipfile
from dataclasses import asdict

import ml_dtypes
import numpy as np
import pytest
from hand_made_nodes import nodes_of

from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.errors import TestbedError
from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.tf.deterministic_graph import relative_difference, rounded
from placement_advisor.tf.run.mirrored import unexchanged
from placement_advisor.tf.split_merging import Repeated, merges
from placement_advisor.tf.verifier import read_results, save_results


def test_difference_is_relative_to_the_largest_value_also_of_small_floats():
    assert relative_difference(np.array([1.0, -4.5]), np.array([1.0, -4.0])) == 0.5 / 4.0
    ours, theirs = (np.array([value], dtype=ml_dtypes.bfloat16) for value in (1.0, 1.0078125))
    assert relative_difference(ours, theirs) == pytest.approx(0.0078125 / 1.0078125)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (np.int64(3), np.int64(4), math.inf),
        (np.array([True]), np.array([True]), 0.0),
        (b"text", b"text", 0.0),
        (np.array([b"a", b"b"], dtype=object), np.array([b"a", b"c"], dtype=object), math.inf),
        (np.zeros((2,)), np.zeros((3,)), math.inf),
        (np.zeros((0,)), np.zeros((0,)), 0.0),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0.0),
        (np.array([np.nan, 1.0]), np.array([2.0, 1.0]), math.inf),
        (np.array([np.inf]), np.array([np.inf]), 0.0),
        (np.array([np.inf, 1.0]), np.array([np.inf, 2.0]), 0.5),
        (np.array([3j]), np.array([4j]), 0.25),
        # Both are zero, but for rounding.
        (np.array([1e-12]), np.array([2e-12]), 1e-12 / 1e-6),
    ],
)
def test_difference_of_exact_values_of_nan_and_of_noise(ours, theirs, expected):
    assert relative_difference(ours, theirs) == pytest.approx(expected)


def test_rounded_values_differ_in_the_last_digit_only():
    values = {"w": np.linspace(-3, 3, 100, dtype=np.float32), "n": np.arange(3), "t": b"text"}
    moved = rounded(values, seed=1)
    assert moved["w"].dtype == np.float32
    assert 0.5 < np.mean(moved["w"] != values["w"]) <= 1.0
    assert relative_difference(moved["w"], values["w"]) < 4e-7
    assert np.array_equal(moved["n"], values["n"])
    assert rounded(values, seed=1)["w"].tolist() == moved["w"].tolist()


SHARES = (4, 4)


def chosen(wholes, parts, gradients):
    """Return the merge of each number, from its value at the whole batch and at two halves."""
    tensors = [(name, 0) for name in wholes]
    whole = [np.float32([value]) for value in wholes.values()]
    of_shares = [[np.float32([part[i]]) for part in parts.values()] for i in range(len(SHARES))]
    found = merges(tensors, whole, whole, of_shares, SHARES, {}, {(name, 0) for name in gradients})
    return {name: merging.merge for (name, _), merging in found.items()}


def test_a_gradient_that_nearly_cancels_goes_like_the_other_gradients():
    # 1.0 of the whole batch against 1.4 as the sum of shares and 0.7 as their mean: the mean is
    # nearer, and statistics of the batch alone could have moved it as far.
    wholes = {"plain": 6.0, "moved": 1.0, "mean": 2.0, "other mean": 3.0}
    parts = {"plain": (4.0, 2.0), "moved": (0.6, 0.8), "mean": (1.0, 3.0), "other mean": (2.0, 4.0)}
    found = chosen(wholes, parts, {"plain", "moved"})
    assert found["plain"] is Merge.SUM
    assert found["moved"] is Merge.SUM
    assert found["mean"] is found["other mean"] is Merge.MEAN


def test_where_statistics_of_the_batch_move_a_sum_a_share_over_and_over_tells():
    # A sum of 6.0, whose shares normalize by themselves: their mean is much nearer than their sum.
    # Of two times the first share it is two times 4.4.
    tensors = [("loss", 0)]
    whole, parts = [np.float32([6.0])], [[np.float32([4.4])], [np.float32([4.8])]]
    values = tensors, whole, whole, parts, SHARES, {}, set()
    assert merges(*values)["loss", 0].merge is Merge.MEAN
    repeated = Repeated(whole=[np.float32([8.8])], part=parts[0], times=2)
    told = merges(*values, repeated)["loss", 0]
    assert told.merge is Merge.SUM
    # What it is off on the whole batch is still said: replicas compute something of their own.
    assert told.difference == pytest.approx(3.2 / 6.0, rel=1e-3)


def test_what_is_clearly_nearer_decides_and_rounding_gives_way_to_what_fits():
    wholes = {"plain": 6.0, "statistic": 2.0}
    parts = {"plain": (4.0, 2.0), "statistic": (1.9, 2.2)}
    assert chosen(wholes, parts, {"plain", "statistic"})["statistic"] is Merge.MEAN

    # A loss that has nearly vanished: the last digit of a variable moves it by as much as itself.
    of_shares = [[np.float32([9.319726e-13])], [np.float32([3.107609e-16])]]
    whole, rounded = [np.float32([9.322834e-13])], [np.float32([9.9e-13])]
    (found,) = merges([("loss", 0)], whole, rounded, of_shares, SHARES, {}, set()).values()
    assert found.merge is Merge.SUM
    assert found.difference == 0


def test_results_are_read_as_they_were_written(tmp_path):
    written = StepResults(
        outputs=(np.float32(0.25), np.array([b"a", b"longer"], object)),
        before={"w": np.arange(6, dtype=np.float32).reshape(2, 3), "empty": np.zeros((0, 4))},
        state={"w": np.full((2, 3), 7, ml_dtypes.bfloat16), "count": np.int64(3)},
        given={
            "w": (
                AppliedUpdate(update="AssignSub", step=0, value=np.array([1 + 2j])),
                AppliedUpdate(update="AssignSub", step=1, value=np.array(True)),
            ),
            "unknown": None,
            "none": (),
        },
    )
    path = tmp_path / "results"
    save_results(path, [written, written])
    found = read_results(path)
    assert len(found) == 2
    for each in found:
        np.testing.assert_equal(asdict(each), asdict(written))
        assert each.outputs[0].dtype == np.float32
        assert each.state["w"].dtype == ml_dtypes.bfloat16
        assert each.given["none"] == ()


_LAYOUT = '[{"outputs": [["0", "object", [1]]], "before": {}, "state": {}, "given": {}}]'


@pytest.mark.parametrize(
    "content",
    [b"", pickle.dumps([1]), b"PK\x05\x06" + bytes(18), {"0": bytes(8), "layout.json": _LAYOUT}],
    ids=["nothing", "a pickle", "an empty archive", "an array of objects"],
)
def test_what_is_no_file_of_results_is_refused(tmp_path, content):
    path = tmp_path / "results"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, part in content.items():
                archive.writestr(name, part)
    with pytest.raises(TestbedError, match="results of steps cannot be read"):
        read_results(path)


def alone(*lines, replicas=2):
    """Ask of lines like ``sum = AddN a b``; ``b:1`` is b's second tensor."""
    nodes = nodes_of("; ".join(lines))
    samples = {node.name: int(node.name[-1]) for node in nodes if node.kind == "Placeholder"}
    handles = {node.name: node.name[0] for node in nodes if node.kind == "VarHandleOp"}
    return unexchanged(nodes, samples, handles, replicas)


W = ("w0 = VarHandleOp", "x0 = Placeholder", "old = ReadVariableOp w0", "g = Mul x0 old")


BOTH = (*W, "w1 = VarHandleOp", "x1 = Placeholder", "h = Neg x1", "sum = AddN g h")
REDUCED = (*W, "r = CollectiveReduceV2 g")
SLOT = ("m0 = VarHandleOp", "keep = AssignAddVariableOp m0 g", "mean = ReadVariableOp m0")
COUNTER = ("one = Const", "n0 = VarHandleOp", "count = AssignAddVariableOp n0 one")
EXCHANGED = (*REDUCED, "set = AssignSubVariableOp w0 r", "m0 = VarHandleOp")
OWN = (*EXCHANGED, "now = ReadVariableOp w0", "h = Mul x0 now")
HANDED_ON = (*REDUCED, "n = IdentityN r g")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((*W, "set = AssignSubVariableOp w0 g"), ("w",)),
        ((*REDUCED, "set = AssignSubVariableOp w0 r"), ()),
        # Within a process a sum over replicas comes from all of them.
        ((*BOTH, "a = AssignSubVariableOp w0 sum", "b = AssignSubVariableOp w1 sum"), ()),
        ((*BOTH, "a = AssignSubVariableOp w0 g", "b = AssignSubVariableOp w1 h"), ("w",)),
        # A slot hands on where it was made from.
        ((*W, *SLOT, "set = AssignSubVariableOp w0 mean"), ("m", "w")),
        # Counters and sizes come from no samples.
        ((*W, *COUNTER), ()),
        ((*W, "size = Shape x0", "set = AssignAddVariableOp w0 size"), ()),
        # Nothing is said of what calls exchange within.
        ((*W, "c = StatefulPartitionedCall g", "set = AssignSubVariableOp w0 c"), ()),
        # Beside weights that are exchanged.
        ((*OWN, "keep = AssignSubVariableOp m0 h"), ("m",)),
        ((*OWN, "again = Neg now", "keep = AssignSubVariableOp m0 again"), ()),
        # Tensors that one op hands on stay apart.
        ((*HANDED_ON, "set = AssignSubVariableOp w0 n"), ()),
        ((*HANDED_ON, "set = AssignSubVariableOp w0 n:1"), ("w",)),
    ],
)
def test_updates_from_own_samples_alone_are_found(lines, found):
    assert alone(*lines) == found


def test_a_sum_over_some_replicas_does_not_come_from_all():
    assert alone(*BOTH, "a = AssignSubVariableOp w0 sum", replicas=3) == ("w",)
