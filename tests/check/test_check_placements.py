"""How a model that is checked is placed: by a file older than it, by a rule, by a search."""

import json
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from layer_models import model
from record_cases import layer

from placement_advisor.candidates.families import SPLITS
from placement_advisor.check.placements import DoesNotFitError, PlacementFreedom, lay_out
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.fingerprint import layer_fingerprints
from placement_advisor.graph.identities import identities
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.cluster_file import load_cluster
from placement_advisor.machine.presets import read_hardware

KINDS = {"left": "Relu", "right": "Softmax", "join": "Add"}
MODEL = model("in -> left", "in2 -> right", "left right -> join", kinds=KINDS)
TOWERS = model("in -> left", "left -> left2", "in2 -> right", "right -> right2",
               "left2 right2 -> join", "join -> loss")  # fmt: skip
DEVICES = ("GPU:0", "GPU:1")
CPUS = """
[[devices]]
name = "CPU:0"
preset = "Xeon8280"
[[devices]]
name = "CPU:1"
preset = "Xeon8280"
[[links]]
between = ["CPU:0", "CPU:1"]
preset = "PCIe3"
"""
BY_LAYER = {"": "GPU:0", "left": "GPU:0", "right": "GPU:1", "join": "GPU:0"}


@dataclass(frozen=True, slots=True)
class Project:
    root: Path

    def write(self, **changes):
        content = {
            "schema_version": 1,
            "label": "mine",
            "family": "towers",
            "rationale": "two sides",
            "graph_fingerprint": MODEL.fingerprint,
            "devices": list(DEVICES),
            "by_layer": BY_LAYER,
            "by_op": {},
        }
        (self.root / "p.json").write_text(json.dumps(content | changes))

    def lay_out(
        self, graph=MODEL, configured="p.json", *, hardware="2xV100-NVLink", locked=None, asked=None
    ):
        (self.root / "cpus.toml").write_text(CPUS)
        is_file = hardware == CPUS
        cluster = load_cluster(self.root / "cpus.toml") if is_file else read_hardware(hardware)
        costs = roofline_by_place(graph, cluster)
        return lay_out(configured, self.root, graph, asked, costs, cluster, locked or {})


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path)
    found.write()
    return found


def locked_layers(graph):
    """Return the layers of a graph as a lock file has them."""
    found = layer_fingerprints(graph)
    return {name or "": layer(made_of, "GPU:0") for name, made_of in found.items()}


def device_of(found):
    return dict(found.placement.device_of)


def test_a_file_places_layers_in_the_order_of_its_devices_and_leaves_no_freedom(project):
    found = project.lay_out()
    assert found.freedom is PlacementFreedom.NONE
    on_first = dict.fromkeys(("in", "in2", "left", "join"), "GPU:0")
    assert device_of(found) == {**on_first, "right": "GPU:1"}
    names = dict(zip(DEVICES, ("worker:0", "worker:1"), strict=True))
    project.write(devices=list(names.values()), by_layer={k: names[v] for k, v in BY_LAYER.items()})
    assert device_of(project.lay_out())["right"] == "GPU:1"
    project.write(by_op={"left": "GPU:1"})
    assert device_of(project.lay_out())["left"] == "GPU:1"


RENAMED = model("in -> visitor", "in2 -> film", "visitor film -> top",
                kinds={"visitor": "Relu", "film": "Softmax", "top": "Add"})  # fmt: skip


def test_renamed_layers_are_found_by_what_they_are_made_of_where_that_is_known(project):
    found = device_of(project.lay_out(RENAMED, locked=locked_layers(MODEL)))
    assert (found["visitor"], found["film"], found["top"]) == ("GPU:0", "GPU:1", "GPU:0")
    with pytest.raises(DoesNotFitError) as caught:
        project.lay_out(RENAMED)
    assert caught.value.message == (
        "p.json has no device for visitor, film, top; it places left, right, join, which no longer "
        "exist"
    )


def test_renamed_layers_are_found_without_a_lock_file(project):
    apart = asdict(identities(MODEL, BY_LAYER, ("left",)))
    project.write(by_op={"left": "GPU:1"}, structure=apart)
    found = device_of(project.lay_out(RENAMED))
    assert (found["visitor"], found["film"], found["top"]) == ("GPU:1", "GPU:1", "GPU:0")
    project.write(structure=asdict(identities(MODEL, BY_LAYER, ())))
    kinds = {"visitor": "Relu", "film": "Softmax", "join": "Add"}
    changed = model("in -> visitor", "in2 -> film", "visitor film in -> join", kinds=kinds)
    found = device_of(project.lay_out(changed))
    assert (found["visitor"], found["film"], found["join"]) == ("GPU:0", "GPU:1", "GPU:0")


def test_a_layer_that_took_the_name_of_another_does_not_take_its_place(project):
    """As `dense` does, once a new one is made before it, which is then the first to be counted."""
    project.write(structure=asdict(identities(MODEL, BY_LAYER, ())))
    kinds = {"left": "Softmax", "left2": "Relu", "join": "Add", "more": "Tanh"}
    shifted = model("in -> left", "in2 -> left2", "left left2 in2 -> join", kinds=kinds)
    found = device_of(project.lay_out(shifted))
    assert (found["left"], found["left2"]) == ("GPU:1", "GPU:0")
    longer = model("in -> left", "in2 -> left2", "left left2 -> more", "more -> join", kinds=kinds)
    with pytest.raises(DoesNotFitError, match=r"has no device for more$"):
        project.lay_out(longer)


POOLS = ("conv0", "pool0", "conv1", "pool1", "conv2", "pool2", "conv3", "pool3")


def tower(blocks, wider=0):
    """Return blocks whose filters double from one to the next, and those of the first ``wider``.

    As in a tower of images, where each pool of the wider one makes what the next one did.
    """
    names = POOLS[: 2 * blocks]
    kinds = {name: f"{name[:4]}{int(name[4]) - wider}" for name in names if name[0] == "p"}
    kinds |= {name: f"{name}{wider}" for name in names if name[0] == "c"}
    return model("in -> conv0", *(f"{a} -> {b}" for a, b in pairwise(names)), kinds=kinds)


def test_layers_keep_their_names_where_others_are_made_of_what_they_were(project):
    narrow = tower(3)
    by_layer = {"": "GPU:0"} | {name: f"GPU:{int(name[4]) % 2}" for name in POOLS[:6]}
    project.write(by_layer=by_layer, structure=asdict(identities(narrow, by_layer, ())))
    found = device_of(project.lay_out(tower(3, wider=1)))
    assert {name: found[name] for name in POOLS[:6]} == {name: by_layer[name] for name in POOLS[:6]}
    with pytest.raises(DoesNotFitError) as caught:
        project.lay_out(tower(4, wider=1))
    assert caught.value.message == "p.json has no device for conv3, pool3"


@pytest.mark.parametrize("layer", ["left", "other"])
def test_an_op_that_was_apart_from_its_layer_and_is_gone_leaves_nothing_to_place(project, layer):
    known = asdict(identities(MODEL, BY_LAYER, ("left",)))
    known["layers"]["left"]["ops"] = {"adam/Cast_98/ReadVariableOp": 1}
    by_op = {"adam/Cast_98/ReadVariableOp": "GPU:1"}
    project.write(by_op=by_op, by_layer={**BY_LAYER, "other": "GPU:0"}, structure=known)
    kinds = {layer: "Tanh" if layer == "other" else "Relu", "join": "Add"}
    fewer = model(f"in -> {layer}", f"{layer} in -> join", kinds=kinds)
    assert device_of(project.lay_out(fewer))[layer] == "GPU:0"


def test_new_layers_do_not_fit_and_are_listed_and_one_that_is_gone_does_no_harm(project):
    wires = ("in -> left", "in2 -> right", "left right -> join", "join -> extra")
    more = model(*wires, kinds=KINDS)
    with pytest.raises(DoesNotFitError) as caught:
        project.lay_out(more, locked=locked_layers(MODEL))
    assert caught.value.message == "p.json has no device for extra"
    assert caught.value.ops == ("extra",)
    assert "advisor analyze" in (caught.value.hint or "")
    fewer = model("in -> left", "left -> join", kinds=KINDS)
    assert device_of(project.lay_out(fewer)) == {"in": "GPU:0", "left": "GPU:0", "join": "GPU:0"}
    many = model("in -> n0", *(f"n{i} -> n{i + 1}" for i in range(8)))
    with pytest.raises(DoesNotFitError, match="n0, n1, n2, n3, n4 and 4 more; it places left"):
        project.lay_out(many)


def test_what_a_file_does_not_say_or_says_of_other_devices_is_named(project):
    project.write(by_layer={k: v for k, v in BY_LAYER.items() if k})
    with pytest.raises(DoesNotFitError, match="has no device for ops of no layer"):
        project.lay_out()
    project.write(devices=["a", "b", "c"], by_layer=dict.fromkeys(BY_LAYER, "c"))
    with pytest.raises(AdvisorError, match="written for 3 devices, there are 2: GPU:0, GPU:1"):
        project.lay_out()


def test_what_touches_a_variable_goes_with_it_and_a_search_ends_the_same_way(project):
    weights = Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, layer="left", variable="w")
    read = Op(name="r", kind="ReadVariableOp", layer="right", variable="w")
    graph = OpGraph([*MODEL.ops, weights, read], MODEL.edges)
    assert device_of(project.lay_out(graph))["r"] == "GPU:0"
    found = [project.lay_out(configured="auto").placement.device_of for _ in range(2)]
    assert found[0] == found[1]


def test_what_is_no_placement_is_one_error(project):
    with pytest.raises(AdvisorError, match=r"gone\.json: cannot be read: No such file"):
        project.lay_out(configured="gone.json")
    with pytest.raises(AdvisorError, match="unknown placement 'tower'") as caught:
        project.lay_out(configured="tower")
    for known in ("one of as-written, auto, ", "towers", "batch-towers"):
        assert known in caught.value.hint


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_of_the_batch_takes_the_code_of_the_model(project, split):
    with pytest.raises(AdvisorError, match="takes the model's code"):
        project.lay_out(configured=split)


def test_a_rule_that_does_not_apply_does_not_fit(project):
    chain = model("in -> left", "left -> b")
    with pytest.raises(DoesNotFitError, match="towers does not apply to this model"):
        project.lay_out(chain, "towers")
    with pytest.raises(DoesNotFitError) as caught:
        project.lay_out(chain, "towers", locked=locked_layers(MODEL))
    assert caught.value.message.endswith("; since it was locked: right, join gone, b new")
    assert caught.value.ops == ("b",)


@pytest.mark.parametrize(
    ("configured", "freedom"),
    [("alternating", PlacementFreedom.RULE), ("auto", PlacementFreedom.SEARCH)],
)
def test_rules_and_searches_are_free(project, configured, freedom):
    found = project.lay_out(TOWERS, configured)
    assert found.freedom is freedom
    found.placement.check(TOWERS, DEVICES)


@pytest.mark.parametrize("configured", ["auto", "single", AS_WRITTEN])
@pytest.mark.parametrize("hardware", ["V100", CPUS, "2xV100-NVLink"], ids=["1", "cpus", "2"])
def test_any_hardware_has_a_place_for_a_step_and_for_none(project, configured, hardware):
    for graph in (MODEL, OpGraph([], [])):
        found = project.lay_out(graph, configured, hardware=hardware, asked={})
        assert len(found.placement.device_of) == len(graph.placed_ops)


def test_as_written_needs_the_scopes_and_as_many_devices(project):
    with pytest.raises(AdvisorError, match="the graph file does not say"):
        project.lay_out(configured=AS_WRITTEN)
    named = r"name 3 devices \(GPU:0, GPU:1, GPU:2\), the hard"
    with pytest.raises(DoesNotFitError, match=named) as caught:
        project.lay_out(configured=AS_WRITTEN, asked={"left": "GPU:1", "right": "GPU:2"})
    assert caught.value.ops == ("right",)


def test_a_step_that_all_devices_together_do_not_hold_does_not_fit(project):
    held = {"role": Role.VARIABLE, "parameter_bytes": 60}
    graph = OpGraph([Op(name, "VarHandleOp", layer=name, **held) for name in "abc"], [])
    workers = assumed_cluster(4)
    small = tuple(replace(each, memory_bytes=50) for each in workers.devices)
    cluster = replace(workers, devices=small)
    costs = roofline_by_place(graph, cluster)
    with pytest.raises(DoesNotFitError, match="fits into the memory of the devices"):
        lay_out("auto", project.root, graph, {}, costs, cluster, {})
