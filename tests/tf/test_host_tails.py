"""A detector whose end, a loop of small ops, belongs on the host of a GPU."""

import json
from functools import cache

import pytest
from command_runs import few_rounds, run_here
from real_runs import needs_workers
from traced_models import trace

from placement_advisor.candidates.families import placements_of, propose
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.machine.presets import read_hardware
from placement_advisor.processes import children
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.simulator.simulator import Simulator

detection_graph = RemoteModule("detection_graph")
OUTPUTS = tuple(f"detection_{name}" for name in ("boxes", "scores", "classes", "number"))
FAMILIES = ("single", "tail-on-host", "loops-on-host")
LOOP = "Postprocessor/map/while"


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """Return a function that writes a detector of so many classes."""
    folder = tmp_path_factory.mktemp("detectors")

    @cache
    def written(classes):
        path = folder / f"detector{classes}.pb"
        with children.Child("writer") as writer:
            writer.call(detection_graph.write, str(path), 64, 64, classes)
        return path

    return written


@pytest.fixture(scope="module")
def graph_of(file_of, tmp_path_factory):
    """Return a function that traces a detector of so many classes."""

    @cache
    def traced(classes):
        folder = tmp_path_factory.mktemp("traced")
        return trace(file_of(classes), folder, run=False, outputs=OUTPUTS).graph

    return traced


def placements(graph, cluster):
    costs = roofline_by_place(graph, cluster)
    return costs, placements_of(propose(FAMILIES, graph, costs, cluster))


def test_each_class_is_read_by_the_host_five_times(graph_of):
    few, more = (graph_of(classes).op(LOOP) for classes in (2, 4))
    assert (few.trips, few.device_kinds) == (1, frozenset({"CPU", "GPU"}))
    # How many scores are high and how many boxes lie within; boxes, scores and what is kept of
    # them, as this suppression has no GPU kernel.
    assert more.inside.copies - few.inside.copies == 2 * (2 + 3)


def test_loop_and_end_go_to_the_host_and_the_network_stays_and_so_on_workers(graph_of):
    graph, cluster = graph_of(12), read_hardware("V100")
    costs, found = placements(graph, cluster)
    simulator = Simulator(graph, costs, cluster)
    single_ns = simulator.step_ns(found["single"])
    _, on_workers = placements(graph, assumed_cluster(2))
    worker_of = {"GPU:0": "worker:0", "CPU:0": "worker:1"}
    for family in FAMILIES[1:]:
        device_of = found[family].device_of
        assert device_of[LOOP] == "CPU:0"
        convolutions = {op.name for op in graph.ops if "Conv" in op.kind}
        assert {device_of[name] for name in convolutions} == {"GPU:0"}
        assert simulator.step_ns(found[family]) < single_ns
        expected = {name: worker_of[place] for name, place in device_of.items()}
        assert on_workers[family].device_of == expected


@needs_workers
@pytest.mark.slow
def test_on_workers_both_run_and_give_the_same_results(file_of, tmp_path):
    words = ("--candidates", ",".join(FAMILIES[1:]), "--outputs", ",".join(OUTPUTS))
    brief = ("--testbed", "workers", "--rounds", "3", "--steps", "1", "--json", "-q")
    with few_rounds():
        ran = run_here("analyze", str(file_of(12)), *words, *brief, "-o", str(tmp_path / "out"))
    assert ran.code == 0, ran.err
    single, *moved = json.loads(ran.out)["candidates"]
    assert (single["name"], [each["name"] for each in moved]) == ("single", [*FAMILIES[1:]])
    for candidate in moved:
        assert candidate["measured"]["verification"]["unverified"] == []
        assert candidate["measured"]["moved_ops"] == []
