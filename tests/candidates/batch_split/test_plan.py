import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_steps import step, training

from placement_advisor.candidates.batch_split.plan import (
    check_no_pairs,
    finished,
    kept_statistics,
    own_of_replicas,
    plan_split,
    shares_of,
)
from placement_advisor.candidates.batch_split.split_graph import Merge, Wiring
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role


def test_what_reads_samples_is_replicated_and_gradients_and_results_are_merged():
    plan = plan_split(training(4), training(2), [("loss", 0)])
    assert plan.replicated == {"x", "product", "loss", "gradient"}
    assert plan.local == set()
    assert set(plan.merged) == {("gradient", 0), ("loss", 0)}
    assert plan.divided == ()


# What is replicated > what replicas have of their own > what is merged > what is divided.
PLANS = {
    "a scale that is computed from the batch and applied to it": (
        "x 8n - input; mean 4 < x; root 4 Sqrt < mean; scaled 8n < x root; total 4 < scaled; "
        "log 4 Log < total",
        "x mean root scaled total > > total >",
    ),
    "one number that is made of samples and of a number for all": (
        "x 8n - input; weight 4 - input; sum 4 < x weight",
        "x sum > > sum >",
    ),
    "constants are at hand in each replica, and so is what follows from them": (
        "x 8n - input; end 4 Const constant; range 16 Range < end; unread 4 Const constant; "
        "negated 4 Neg < unread; product 8n < x range",
        "x product > end range > product >",
    ),
    "a random number for all is drawn once": (
        "x 8n - input; shape 4 Const constant; noise 4 RandomUniform < shape; product 8n < x noise",
        "x product > > product >",
    ),
    "what an update computes of constants is computed once": (
        "x 8n - input; start 4 Const constant; rate 4 Mul update < start; product 8n < x rate",
        "x product > > product >",
    ),
    "an update of rows runs once on the rows of all replicas": (
        "ids 4n - input; table 0 VarHandleOp variable table; "
        "rows 32n ResourceGather - table < table ids; gradient 32n - backward < rows; "
        "update 0 ResourceScatterAdd update table < table ids gradient",
        "ids rows gradient > > ids gradient >",
    ),
    "what a shared op makes for each sample is divided": (
        "x 8n - input; state 0 VarHandleOp variable state; "
        "swap 8n Exchange - state < state x; product 8n < swap",
        "x product > > x product > swap",
    ),
}


@pytest.mark.parametrize(("text", "becomes"), PLANS.values(), ids=PLANS)
def test_the_plan_of_a_step_says_what_becomes_of_its_ops(text, becomes):
    whole = step(4, text)
    read = {edge.producer for edge in whole.edges}
    outputs = [(op.name, 0) for op in whole.ops if op.name not in read and op.role is Role.FORWARD]
    plan = plan_split(whole, step(2, text), outputs)
    replicated, local, merged, divided = (part.split() for part in becomes.split(">"))
    assert (plan.replicated, plan.local) == (set(replicated), set(local))
    assert set(plan.merged) == {(name, 0) for name in merged}
    assert plan.divided == tuple((name, 0) for name in divided)


def test_a_table_belongs_to_replicas_only_if_they_alone_look_up_in_it():
    text = (
        "words 8n - input; word 8 Const constant; table 8 HashTableV2 variable table; "
        "ids 8n LookupTableFindV2 - table < table words"
    )
    assert "table" in plan_split(step(4, text), step(2, text), [("ids", 0)]).replicated
    text += "; id 8 LookupTableFindV2 < table word"
    shared = plan_split(step(4, text), step(2, text), [("ids", 0), ("id", 0)])
    assert "table" not in shared.replicated


def test_a_loop_over_samples_that_holds_a_variable_is_refused():
    holding, plain = "x 8n - input; loop 8n While - count < x", "x 8n - input; loop 8n While < x"
    with pytest.raises(BatchSplitError, match="While 'loop' computes on samples and changes"):
        plan_split(step(4, holding), step(2, holding), [("loop", 0)])
    assert "loop" in plan_split(step(4, plain), step(2, plain), [("loop", 0)]).replicated


def test_a_step_that_is_another_graph_or_has_no_batch_is_refused():
    one, other = step(4, "x 8n - input; y 8n < x"), step(2, "x 8n - input; loop 8n < x")
    told = "at another batch size the step is a different graph: see op 'y'"
    with pytest.raises(BatchSplitError, match=told):
        plan_split(one, other, [])
    in_turn, side_by_side = (step(4, f"x 8n - input; y 8n < x; z 8n < {read}") for read in "yx")
    with pytest.raises(BatchSplitError, match="see op 'z'"):
        plan_split(in_turn, side_by_side, [])
    with pytest.raises(BatchSplitError, match="no tensor of the step grows"):
        plan_split(training(4), training(4), [])


def scored(samples):
    """Return a step that makes something of samples, and scores pairs of them."""
    return step(samples, f"x 32n - input; y 8n < x; scores {4 * samples**2} < y")


def test_what_holds_something_for_each_pair_is_refused_and_not_what_is_rounded_up():
    with pytest.raises(BatchSplitError, match="op 'scores' makes something for each pair"):
        check_no_pairs(scored(16), scored(4), 4)

    many, few = (step(n, f"x 32n - input; room {4 * -(-n // 3)} < x") for n in (16, 4))
    check_no_pairs(many, few, 4)


def normalized(samples, more=""):
    """Return a layer with a mask of its own and a moving mean of its batch."""
    return step(
        samples,
        "x 8n - input; mask 8n RandomUniform < x; masked 8n Mul < x mask; mean 4 Mean < masked; "
        "centred 8n Sub < masked mean; moving 0 VarHandleOp variable moving; "
        "kept - AssignVariableOp - moving < moving mean; loss 4 Mean < centred; "
        "total 0 VarHandleOp variable total; "
        f"added - AssignAddVariableOp - total < total loss{more}",
    )


def test_random_numbers_and_statistics_are_each_replicas_own_and_moving_ones_are_kept():
    graph = normalized(4)
    plan = plan_split(graph, normalized(2), [("loss", 0)])
    assert own_of_replicas(graph, plan, []) == ("mask",)
    assert set(plan.merged) == {("mean", 0), ("loss", 0)}
    # A metric sums the loss up, but nothing computes with it: that it differs is a consequence.
    assert own_of_replicas(graph, plan, plan.merged) == ("mask", "mean")
    assert kept_statistics(graph, plan) == ("moving",)
    # Those that replicas compute with are not only kept.
    more = "; read 4 ReadVariableOp - moving < moving; shifted 8n Sub < x read"
    whole = normalized(4, more)
    plan = plan_split(whole, normalized(2, more), [("shifted", 0)])
    assert kept_statistics(whole, plan) == ()


def scaled(samples, joined="Mul", controls=()):
    """Return the gradient of a scale: of a sum over samples and of what was computed with it."""
    return step(
        samples,
        "x 8n - input; variance 4 Mean < x; inverse 4 Rsqrt < variance; centred 8n < x inverse; "
        "summed 4 Sum backward < centred; reshaped 4 Reshape backward < summed; "
        f"joined 4 {joined} backward < reshaped inverse; decay 4 Const constant; "
        "decayed 4 Mul backward < joined decay; scale 0 VarHandleOp variable scale; "
        "squared 4 Mul update < decayed summed; "
        "set 0 AssignSubVariableOp update scale < scale squared",
        controls,
    )


def test_a_gradient_that_multiplies_is_each_replicas_own_and_a_sum_is_added_up_once():
    whole, share = scaled(4), scaled(2)
    plan = plan_split(whole, share, [])
    assert {"summed", "reshaped", "joined"} <= plan.replicated
    assert not {"decayed", "squared"} & plan.replicated
    assert set(plan.merged) == {("joined", 0), ("summed", 0)}
    # The scale is set to what follows from it, and each replica joins its own.
    assert own_of_replicas(whole, plan, [("summed", 0)]) == ()
    plan = plan_split(scaled(4, "AddV2"), scaled(2, "AddV2"), [])
    assert not {"reshaped", "joined"} & plan.replicated
    waits = (("centred", "set"),)
    whole, share = scaled(4, controls=waits), scaled(2, controls=waits)
    plan = plan_split(whole, share, [])
    assert set(finished(whole, plan, [])) == {("decayed", 0), ("summed", 0)}


@pytest.mark.parametrize("joined", ["Mul", "AddV2"])
def test_finished_gradients_are_what_updates_read(joined):
    whole, share = scaled(4, joined), scaled(2, joined)
    plan = plan_split(whole, share, [])
    assert set(finished(whole, plan, [])) == {("decayed", 0), ("summed", 0)}
    assert finished(whole, plan, [("joined", 0)])[2:] == (("joined", 0),)


def test_a_key_that_replicas_share_is_changed_by_their_number():
    text = (
        "x 8n - input; seed 16 Placeholder; key 8 StatelessRandomGetKeyCounter < seed; "
        "drawn 8n StatelessRandomUniformV2 < key; kept 8n Mul < x drawn"
    )
    plan = plan_split(step(4, text), step(2, text), [("kept", 0)])
    assert plan.keys == (("key", 0),)
    merges = dict.fromkeys(plan.merged, Merge.CONCAT)
    wiring = Wiring(plan=plan, shares=(2, 2), merges=merges, axes={("kept", 0): 0})
    assert wiring.tensor(("key", 0), 0) == ("key", 0)
    assert wiring.tensor(("key", 0), 1) == ("replica_1/key/own", 0)
    number, own = (each for each in wiring.added() if each.replica == 1)
    assert number.value == 1
    assert own.inputs == (("key", 0), (number.name, 0))


def test_shares_are_in_proportion_and_what_rounding_leaves_goes_to_who_lost_most():
    assert shares_of(32, (1, 1)) == (16, 16)
    assert shares_of(10, (3, 2)) == (6, 4)
    # 3.75, 3.75 and 2.5: the two that lost three quarters get one more each.
    assert shares_of(10, (3, 3, 2)) == (4, 4, 2)
    assert shares_of(7, (1, 1)) == (4, 3)
    assert shares_of(7, (1, 1, 1)) == (3, 2, 2)
    with pytest.raises(BatchSplitError, match="share of device 1 in a batch of 8 rounds to no"):
        shares_of(8, (100, 1))
    with pytest.raises(BatchSplitError, match="a batch of 2 has less than one sample for"):
        shares_of(2, (1, 1, 1))


@given(st.integers(1, 5000), st.lists(st.floats(0.05, 20), min_size=1, max_size=6))
def test_shares_make_up_the_batch_and_are_within_one_sample_of_their_part(batch, ratios):
    try:
        shares = shares_of(batch, ratios)
    except BatchSplitError:
        assert batch * min(ratios) / sum(ratios) < 1
        return
    assert sum(shares) == batch
    for share, ratio in zip(shares, ratios, strict=True):
        assert abs(share - batch * ratio / sum(ratios)) < 1


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf")])
def test_a_ratio_that_is_no_positive_number_is_refused(ratio):
    with pytest.raises(BatchSplitError, match=f"{ratio:g} of 1:{ratio:g} is not a positive number"):
        shares_of(8, (1, ratio))
