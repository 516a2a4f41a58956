import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from placed_steps import place

from placement_advisor.analysis.instructions import (
    device_by_scope,
    how_to_split,
    layer_devices,
    placement_in_words,
    scope_devices,
)
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph


def step(device_of, gradients=None):
    """Return a step whose layers have a variable, a product, its gradient and its update."""
    ops, placed = [], {}
    for layer, device in device_of.items():
        held = f"{layer}/kernel"
        for op in (
            Op(held, "VarHandleOp", Role.VARIABLE, layer, held),
            Op(f"model/{layer}/MatMul", "MatMul", Role.FORWARD, layer),
            Op(f"gradient_tape/model/{layer}/MatMul", "MatMul", Role.BACKWARD, layer),
            Op(f"adam/{layer}", "ResourceApplyAdam", Role.UPDATE, layer, held),
        ):
            ops.append(op)
            is_gradient = op.role is Role.BACKWARD
            placed[op.name] = gradients if is_gradient and gradients else device
    return OpGraph(ops, ()), place(placed)


TOWERS = {"user_conv": "GPU:0", "user_dense": "GPU:0", "item_conv": "GPU:1", "item_dense": "GPU:1"}


def test_towers_and_a_single_device_in_words():
    assert (
        placement_in_words(*step(TOWERS))
        == "layers user_* on GPU:0, item_* on GPU:1; their gradients with them"
    )
    assert (
        placement_in_words(*step(TOWERS, gradients="GPU:0"))
        == "layers user_* on GPU:0, item_* on GPU:1; all gradients on GPU:0"
    )
    words = placement_in_words(*step(TOWERS | {"words": "GPU:1", "rating": "GPU:1"}))
    assert words.startswith("layers user_* on GPU:0, all other layers on GPU:1;")
    graph, placement = step(TOWERS)
    apart = {**placement.device_of, "gradient_tape/model/user_conv/MatMul": "GPU:1"}
    assert placement_in_words(graph, place(apart)) == (
        "layers user_* on GPU:0, item_* on GPU:1; their gradients with them; "
        "except for 1 backward op of user_conv on GPU:1"
    )
    assert placement_in_words(*step(dict.fromkeys(TOWERS, "GPU:0"))) == "all layers on GPU:0"
    graph = OpGraph([Op(name, "Neg") for name in "abc"], ())
    placement = place({"a": "GPU:0", "b": "GPU:1", "c": "GPU:1"})
    assert placement_in_words(graph, placement) == "1 op on GPU:0, 2 ops on GPU:1"


@given(st.lists(st.sampled_from(["ab", "cd", "ef"]), min_size=1, max_size=40))
def test_a_placement_in_short_counts_layers_and_names_no_part_of_a_list(halves):
    """A list that has to be followed is there in full, or is not there."""
    names = {f"{chr(97 + n % 26)}{half}{n}x": f"GPU:{half > 'ab'}" for n, half in enumerate(halves)}
    graph, placement = step(names)
    in_full = placement_in_words(graph, placement)
    in_short = placement_in_words(graph, placement, most=3)
    assert " more" not in in_full + in_short
    assert in_short == in_full or re.search(r"\d+ layers on GPU:", in_short)
    assert len(in_short) <= len(in_full)


layers = st.lists(
    st.lists(st.sampled_from(["a", "b", "1", "2", "3", "4"]), min_size=1, max_size=3).map("_".join),
    unique=True,
    min_size=1,
    max_size=12,
)


@given(layers, st.data())
def test_the_words_of_any_placement_say_where_each_layer_is(names, data):
    device_of = {name: data.draw(st.sampled_from(("GPU:0", "GPU:1", "GPU:2"))) for name in names}
    graph, placement = step(device_of)
    assert layer_devices(graph, placement) == device_of
    words = placement_in_words(graph, placement).split(";")[0]
    said = {}
    rest = None
    # Devices end the parts: "layers a, b_* and c on GPU:0, all other layers on GPU:1".
    for part, device in re.findall(r"(?:layers |, |^)(.*?) on (GPU:\d)", words):
        if part in ("all", "all other layers", "all layers", "other layers"):
            rest = device
            continue
        for pattern in re.split(r", | and ", part):
            said.update(dict.fromkeys(_meant(pattern, names), device))
    assert {name: said.get(name, rest) for name in names} == device_of


def _meant(pattern, names):
    if " … " in pattern:
        (stem, first, star), (_, last, _) = (
            re.fullmatch(r"(.*?)(\d+)(_\*)?", end).groups() for end in pattern.split(" … ")
        )
        tail = "_.*" if star else ""
        numbered = [(re.fullmatch(rf"{stem}(\d+){tail}", name), name) for name in names]
        return [n for match, n in numbered if match and int(first) <= int(match[1]) <= int(last)]
    if pattern.endswith("*"):
        return [name for name in names if name.startswith(pattern[:-1])]
    return [pattern]


def test_the_listing_gives_each_tower_one_scope():
    graph, placement = step(TOWERS)
    assert Counter(scope_devices(graph, placement).values()) == Counter({"GPU:0": 1, "GPU:1": 2})
    listing = how_to_split(graph, placement, Path()).listing
    assert "'model/item_conv': 'GPU:1'" in listing
    assert "with tf.device(DEVICE['GPU:0']):\n    ...  # user_*\n" in listing


def test_the_call_says_what_to_put_there_and_has_the_path_from_where_the_command_ran():
    graph, placement = step(TOWERS)
    folder = Path("advisor-out/net")
    how = how_to_split(graph, replace(placement, label="towers"), folder)
    assert 'place(step, "advisor-out/net/placements/towers.json", *inputs)' in how.call
    assert "# step is yours: the compiled Keras model, or the function of one" in how.call
    compile(how.call, "call", "exec")
    assert "put your code where this file has ... and step" in " ".join(how.listing.split())
    assert max(map(len, how.listing.splitlines())) <= 100


@given(layers, st.data())
def test_the_listing_reproduces_any_placement_op_by_op(names, data):
    graph, _ = step(dict.fromkeys(names, "GPU:0"))
    placed = {op.name: data.draw(st.sampled_from(["GPU:0", "GPU:1"])) for op in graph.ops}
    scopes = scope_devices(graph, place(placed))
    for op in graph.ops:
        if op.role in (Role.FORWARD, Role.BACKWARD):
            assert device_by_scope(op.name, scopes) == placed[op.name]


def test_names_from_models_cannot_leave_the_listings_text_and_comments():
    name = 'x"""\nimport os\n#\\'
    graph, placement = step({name: "GPU:0", "b": "GPU:1"})
    listing = how_to_split(graph, placement, Path()).listing
    compile(listing, "listing", "exec")
    assert "\nimport os\n" not in listing
