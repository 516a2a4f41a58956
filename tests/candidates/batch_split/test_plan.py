"""What is replicated, shared, merged and divided when a batch is split."""

from __future__ import annotations

import pytest
from split_steps import op, training, wired

from placement_advisor.candidates.batch_split.plan import (
    check_no_pairs,
    finished,
    kept_statistics,
    own_of_replicas,
    plan_split,
)
from placement_advisor.candidates.batch_split.split_graph import Merge, Wiring
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph


def test_what_reads_samples_is_replicated_and_the_update_is_not():
    plan = plan_split(training(4), training(2), [("loss", 0)])
    assert plan.replicated == {"x", "product", "loss", "gradient"}
    assert plan.local == set()


def test_gradients_and_results_are_merged_where_shared_ops_or_the_user_read_them():
    plan = plan_split(training(4), training(2), [("loss", 0)])
    assert set(plan.merged) == {("gradient", 0), ("loss", 0)}
    assert plan.divided == ()


def step(samples: int, text: str) -> OpGraph:
    """Return a step of ops that semicolons part: `name bytes kind role variable < what it reads`.

    `8n` are bytes for each sample; - stands for a kind, role or variable that does not matter.
    """
    ops, reads = [], {}
    for each in text.split("; "):
        words, _, read = each.partition(" < ")
        name, size, kind, role, variable = (*words.split(), *"---")[:5]
        size_bytes = int(size[:-1]) * samples if size.endswith("n") else int(size)
        made = op(name, size_bytes, kind=kind, role=Role.FORWARD if role == "-" else Role(role))
        ops.append(made._replace(variable=None if variable == "-" else variable))
        reads[name] = read.split()
    return wired(ops, reads)


@pytest.mark.parametrize(
    ("text", "outputs", "replicated", "local", "merged", "divided"),
    [
        pytest.param(
            "x 8n - input; mean 4 < x; root 4 Sqrt < mean; scaled 8n < x root; total 4 < scaled; "
            "log 4 Log < total",
            ["log"],
            "x mean root scaled total",
            "",
            ["total"],
            [],
            id="a scale that is computed from the batch and applied to it",
        ),
        pytest.param(
            "x 8n - input; weight 4 - input; sum 4 < x weight",
            ["sum"],
            "x sum",
            "",
            ["sum"],
            [],
            id="one number that is made of samples and of a number for all",
        ),
        pytest.param(
            "x 8n - input; end 4 Const constant; range 16 Range < end; unread 4 Const constant; "
            "product 8n < x range; negated 4 Neg < unread",
            ["product", "negated"],
            "x product",
            "end range",
            ["product"],
            [],
            id="constants are at hand in each replica, and so is what follows from them",
        ),
        pytest.param(
            "x 8n - input; shape 4 Const constant; noise 4 RandomUniform < shape; "
            "product 8n < x noise",
            ["product"],
            "x product",
            "",
            ["product"],
            [],
            id="a random number for all is drawn once",
        ),
        pytest.param(
            "x 8n - input; start 4 Const constant; rate 4 Mul update < start; product 8n < x rate",
            ["product"],
            "x product",
            "",
            ["product"],
            [],
            id="what an update computes of constants is computed once",
        ),
        pytest.param(
            "ids 4n - input; table 0 VarHandleOp variable table; "
            "rows 32n ResourceGather - table < table ids; gradient 32n - backward < rows; "
            "update 0 ResourceScatterAdd update table < table ids gradient",
            [],
            "ids rows gradient",
            "",
            ["ids", "gradient"],
            [],
            id="an update of rows runs once on the rows of all replicas",
        ),
        pytest.param(
            "x 8n - input; state 0 VarHandleOp variable state; "
            "swap 8n Exchange - state < state x; product 8n < swap",
            ["product"],
            "x product",
            "",
            ["x", "product"],
            ["swap"],
            id="what a shared op makes for each sample is divided",
        ),
    ],
)
def test_the_plan_of_a_step_says_what_becomes_of_its_ops(
    text: str,
    outputs: list[str],
    replicated: str,
    local: str,
    merged: list[str],
    divided: list[str],
) -> None:
    plan = plan_split(step(4, text), step(2, text), [(name, 0) for name in outputs])
    assert plan.replicated == set(replicated.split())
    assert plan.local == set(local.split())
    assert set(plan.merged) == {(name, 0) for name in merged}
    assert plan.divided == tuple((name, 0) for name in divided)


def test_a_table_belongs_to_replicas_only_if_they_alone_look_up_in_it():
    def looking_up(samples: int, *others: str):
        table = op("table", 8, kind="HashTableV2", role=Role.VARIABLE)
        ops = [
            op("words", 8 * samples, role=Role.INPUT),
            op("word", 8, kind="Const", role=Role.CONSTANT),
            table._replace(variable="table"),
            op("ids", 8 * samples, kind="LookupTableFindV2")._replace(variable="table"),
        ]
        ops += [op(name, 8, kind="LookupTableFindV2") for name in others]
        reads = {"ids": ["table", "words"]} | {name: ["table", "word"] for name in others}
        return wired(ops, reads)

    alone = plan_split(looking_up(4), looking_up(2), [("ids", 0)])
    assert "table" in alone.replicated
    shared = plan_split(looking_up(4, "id"), looking_up(2, "id"), [("ids", 0), ("id", 0)])
    assert "table" not in shared.replicated


def test_a_loop_over_samples_that_holds_a_variable_is_refused():
    def looping(samples: int, variable: str | None = "count"):
        loop = op("loop", 8 * samples, kind="While")._replace(variable=variable)
        return wired([op("x", 8 * samples, role=Role.INPUT), loop], {"loop": ["x"]})

    with pytest.raises(BatchSplitError, match="While 'loop' computes on samples and changes"):
        plan_split(looping(4), looping(2), [("loop", 0)])
    assert "loop" in plan_split(looping(4, None), looping(2, None), [("loop", 0)]).replicated


def test_a_step_that_is_another_graph_at_another_size_is_refused():
    one = wired([op("x", 32, role=Role.INPUT), op("y", 32)], {"y": ["x"]})
    other = wired([op("x", 16, role=Role.INPUT), op("loop", 16)], {"loop": ["x"]})
    with pytest.raises(
        BatchSplitError, match="at another batch size the step is a different graph: see op 'y'"
    ):
        plan_split(one, other, [])


def test_a_step_wired_otherwise_at_another_size_is_refused():
    ops = [op("x", 32, role=Role.INPUT), op("y", 32), op("z", 32)]
    with pytest.raises(BatchSplitError, match="see op 'z'"):
        plan_split(wired(ops, {"y": ["x"], "z": ["y"]}), wired(ops, {"y": ["x"], "z": ["x"]}), [])


def scored(samples: int):
    """Return a step that makes something of samples, and scores pairs of them."""
    ops = [
        op("x", 32 * samples, role=Role.INPUT),
        op("y", 8 * samples),
        op("scores", 4 * samples**2),
    ]
    return wired(ops, {"y": ["x"], "scores": ["y"]})


def test_what_holds_something_for_each_pair_of_samples_is_refused():
    with pytest.raises(BatchSplitError, match="op 'scores' makes something for each pair"):
        check_no_pairs(scored(16), scored(4), 4)


def test_what_is_rounded_up_for_shares_holds_no_pairs():
    def routed(samples: int):
        room = op("room", 4 * -(-samples // 3))
        return wired([op("x", 32 * samples, role=Role.INPUT), room], {"room": ["x"]})

    check_no_pairs(routed(16), routed(4), 4)


def test_a_step_without_a_batch_is_refused():
    with pytest.raises(BatchSplitError, match="no tensor of the step grows"):
        plan_split(training(4), training(4), [])


def normalized(samples: int):
    """Return a layer with a mask of its own and a moving mean of its batch."""
    return wired(
        [
            op("x", 8 * samples, role=Role.INPUT),
            op("mask", 8 * samples, kind="RandomUniform"),
            op("masked", 8 * samples, kind="Mul"),
            op("mean", 4, kind="Mean"),
            op("centred", 8 * samples, kind="Sub"),
            op("moving", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="moving"),
            op("kept", 0, kind="AssignVariableOp")._replace(variable="moving", output_bytes=()),
            op("loss", 4, kind="Mean"),
            op("total", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="total"),
            op("added", 0, kind="AssignAddVariableOp")._replace(variable="total", output_bytes=()),
        ],
        {
            "mask": ["x"],
            "masked": ["x", "mask"],
            "mean": ["masked"],
            "centred": ["masked", "mean"],
            "kept": ["moving", "mean"],
            "loss": ["centred"],
            "added": ["total", "loss"],
        },
    )


def test_random_numbers_for_samples_are_each_replicas_own():
    graph = normalized(4)
    plan = plan_split(graph, normalized(2), [("loss", 0)])
    assert own_of_replicas(graph, plan, []) == ("mask",)


def test_what_a_step_keeps_of_its_batch_is_each_replicas_own_if_it_is_not_the_same():
    graph = normalized(4)
    plan = plan_split(graph, normalized(2), [("loss", 0)])
    assert set(plan.merged) == {("mean", 0), ("loss", 0)}
    # A metric sums the loss up, but nothing computes with it: that it differs is a consequence.
    assert own_of_replicas(graph, plan, plan.merged) == ("mask", "mean")


def scaled(samples: int, joined: str = "Mul", controls: tuple[tuple[str, str], ...] = ()):
    """Return the gradient of a scale: of a sum over samples and of what was computed with it."""
    return wired(
        [
            op("x", 8 * samples, role=Role.INPUT),
            op("variance", 4, kind="Mean"),
            op("inverse", 4, kind="Rsqrt"),
            op("centred", 8 * samples),
            op("summed", 4, kind="Sum", role=Role.BACKWARD),
            op("reshaped", 4, kind="Reshape", role=Role.BACKWARD),
            op("joined", 4, kind=joined, role=Role.BACKWARD),
            op("decayed", 4, kind="Mul", role=Role.BACKWARD),
            op("scale", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="scale"),
            op("decay", 4, kind="Const", role=Role.CONSTANT),
            op("squared", 4, kind="Mul", role=Role.UPDATE),
            op("set", 0, kind="AssignSubVariableOp", role=Role.UPDATE)._replace(variable="scale"),
        ],
        {
            "variance": ["x"],
            "inverse": ["variance"],
            "centred": ["x", "inverse"],
            "summed": ["centred"],
            "reshaped": ["summed"],
            "joined": ["reshaped", "inverse"],
            "decayed": ["joined", "decay"],
            "squared": ["decayed", "summed"],
            "set": ["scale", "squared"],
        },
        controls,
    )


def test_a_gradient_that_multiplies_what_replicas_computed_is_each_replicas_own():
    whole, share = scaled(4), scaled(2)
    plan = plan_split(whole, share, [])
    assert {"summed", "reshaped", "joined"} <= plan.replicated
    assert not {"decayed", "squared"} & plan.replicated
    assert set(plan.merged) == {("joined", 0), ("summed", 0)}


def test_a_gradient_that_is_a_sum_is_added_up_once():
    whole, share = scaled(4, "AddV2"), scaled(2, "AddV2")
    plan = plan_split(whole, share, [])
    assert not {"reshaped", "joined"} & plan.replicated


@pytest.mark.parametrize("joined", ["Mul", "AddV2"])
def test_finished_gradients_are_what_updates_read(joined: str):
    whole, share = scaled(4, joined), scaled(2, joined)
    plan = plan_split(whole, share, [])
    assert set(finished(whole, plan, [])) == {("decayed", 0), ("summed", 0)}
    assert finished(whole, plan, [("joined", 0)])[2:] == (("joined", 0),)


def test_what_an_update_only_waits_for_is_not_among_finished_gradients():
    waits = (("centred", "set"),)
    whole, share = scaled(4, controls=waits), scaled(2, controls=waits)
    plan = plan_split(whole, share, [])
    assert set(finished(whole, plan, [])) == {("decayed", 0), ("summed", 0)}


def test_a_gradient_that_replicas_go_on_with_is_no_statistic_of_their_own():
    whole = scaled(4)
    plan = plan_split(whole, scaled(2), [])
    # The scale is set to what follows from it, and each replica joins its own.
    assert ("summed", 0) in plan.merged
    assert own_of_replicas(whole, plan, [("summed", 0)]) == ()


def test_moving_statistics_are_kept_and_metrics_are_not_among_them():
    graph = normalized(4)
    plan = plan_split(graph, normalized(2), [("loss", 0)])
    assert kept_statistics(graph, plan) == ("moving",)


def test_statistics_that_replicas_compute_with_are_not_only_kept():
    def reading(samples: int):
        graph = normalized(samples)
        read = op("read", 4, kind="ReadVariableOp")._replace(variable="moving")
        more = wired(
            [*graph.ops, read, op("shifted", 8 * samples, kind="Sub")],
            {"read": ["moving"], "shifted": ["x", "read"]},
        )
        return OpGraph(more.ops, [*graph.edges, *more.edges])

    plan = plan_split(reading(4), reading(2), [("shifted", 0)])
    assert kept_statistics(reading(4), plan) == ()


def test_a_key_that_replicas_share_is_changed_by_their_number():
    def dropping(samples: int):
        return wired(
            [
                op("x", 8 * samples, role=Role.INPUT),
                op("seed", 16, kind="Placeholder"),
                op("key", 8, kind="StatelessRandomGetKeyCounter"),
                op("drawn", 8 * samples, kind="StatelessRandomUniformV2"),
                op("kept", 8 * samples, kind="Mul"),
            ],
            {"key": ["seed"], "drawn": ["key"], "kept": ["x", "drawn"]},
        )

    plan = plan_split(dropping(4), dropping(2), [("kept", 0)])
    assert plan.keys == (("key", 0),)
    wiring = Wiring(
        plan=plan,
        shares=(2, 2),
        merges=dict.fromkeys(plan.merged, Merge.CONCAT),
        axes={("kept", 0): 0},
    )
    assert wiring.tensor(("key", 0), 0) == ("key", 0)
    assert wiring.tensor(("key", 0), 1) == ("replica_1/key/own", 0)
    number, own = (each for each in wiring.added() if each.replica == 1)
    assert number.value == 1
    assert own.inputs == (("key", 0), (number.name, 0))
