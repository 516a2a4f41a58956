"""What loops and conditionals cost, and the shapes behind loops of files that take any batch."""

import pytest
from traced_models import trace

from placement_advisor.processes import children
from placement_advisor.processes.calls import RemoteModule

traced_bodies = RemoteModule("traced_bodies")
written_files = RemoteModule("written_files")

# (2, 3) times (3, 3): 2·3 sums of 3 products, each a multiplication and an addition.
PRODUCT_FLOPS = 2 * 3 * 3 * 2
# Counting to four costs a comparison and an addition per trip.
TRIP_FLOPS = PRODUCT_FLOPS + 2


@pytest.mark.parametrize(
    ("step", "trips", "least_flops", "most_flops"),
    [
        ("four_products", 4, 4 * PRODUCT_FLOPS, 4 * (TRIP_FLOPS + 2)),
        ("five_products_in_a_range", 5, 5 * PRODUCT_FLOPS, 6 * PRODUCT_FLOPS + 5 * 20),
        ("loop_in_a_loop", 3, 12 * PRODUCT_FLOPS, 12 * (TRIP_FLOPS + 2) + 3 * 4),
        # A function that takes any batch is priced at the one that it is given.
        ("called_with_any_batch", 4, 4 * PRODUCT_FLOPS, 4 * (TRIP_FLOPS + 2)),
        # What nobody reads does not run: six sums, and what counting takes.
        ("product_that_nobody_reads", 4, 4 * 6, 4 * PRODUCT_FLOPS - 1),
        # A conditional takes its most expensive branch.
        ("one_or_two_products", None, 2 * PRODUCT_FLOPS - 1, 2 * PRODUCT_FLOPS),
    ],
)
def test_a_composite_takes_its_body_times_its_trips(loader, step, trips, least_flops, most_flops):
    ((found_trips, flops, _, members),) = loader.call(traced_bodies.composites, step).values()
    assert found_trips == trips
    assert least_flops < flops <= most_flops
    has_product = any(name.lower().endswith("matmul") for name in members)
    assert has_product == (step != "product_that_nobody_reads")


@pytest.mark.parametrize(
    ("step", "trips", "flops_are_known"),
    [
        ("until_small", None, False),  # It ends by its data.
        ("one_product_or_until_small", None, False),
        ("doubled_rows", 4, True),  # Its values grow.
    ],
)
def test_what_depends_on_data_or_grows_has_unknown_work(loader, step, trips, flops_are_known):
    ((found, flops, size, _),) = loader.call(traced_bodies.composites, step).values()
    assert (found, size) == (trips, None)
    assert flops_are_known or flops is None


def test_a_loop_reads_and_writes_what_its_trips_do(loader):
    ((_, _, size, _),) = loader.call(traced_bodies.composites, "four_products").values()
    # A product reads (2, 3) and (3, 3) and writes (2, 3) floats; counters are a few bytes more.
    assert 4 * 4 * (6 + 9 + 6) <= size <= 4 * (4 * (6 + 9 + 6) + 100)


def test_the_loop_of_a_gradient_runs_as_often_as_its_loop(loader):
    found = loader.call(traced_bodies.composites, "four_products_with_gradient")
    assert [trips for trips, *_ in found.values()] == [4, 4]
    forward, backward = (flops for _, flops, *_ in found.values())
    assert 4 * PRODUCT_FLOPS < forward < 4 * 2 * PRODUCT_FLOPS
    # A loop's gradient computes those of all that it reads: of x and of the variable.
    assert 4 * 2 * PRODUCT_FLOPS < backward < 4 * 3 * PRODUCT_FLOPS


def test_what_a_conditional_runs_on_the_host_counts_for_each_trip_of_a_known_loop(loader):
    ((once, kinds),) = loader.call(traced_bodies.inside, "marked_twice").values()
    assert kinds == ["CPU", "GPU"]
    ops, copies, copied_bytes = once
    # To the host, a truth value; from it, three. (Indices and shape are constants.)
    assert (copies, copied_bytes) == (2, 1 + 3)
    assert 4 <= ops <= 8

    ((inside, kinds),) = loader.call(traced_bodies.inside, "marked_in_each_trip").values()
    assert kinds == ["CPU", "GPU"]
    assert inside[1:] == (4 * copies, 4 * copied_bytes)
    assert inside[0] > 4 * ops

    ((unknown, _),) = loader.call(traced_bodies.inside, "until_small").values()
    assert unknown is None


BATCH = 32


@pytest.fixture(scope="module")
def graph_of(tmp_path_factory):
    files, traced = (tmp_path_factory.mktemp(name) for name in ("files", "traced"))
    with children.Child("writer") as writer:
        writer.call(written_files.write_loops, str(files))
    return lambda file: trace(files / file, traced, run=False).graph


def _only(graph, kind):
    (op,) = [op for op in graph.ops if op.kind == kind]
    return op


def test_the_lists_and_states_of_a_saved_lstm_have_the_size_of_the_batch(graph_of):
    graph = graph_of("lstm")
    loop = _only(graph, "While")
    assert loop.trips == 6
    # The six words of four floats go in as a list; states have eight floats.
    assert {6 * BATCH * 4 * 4, BATCH * 8 * 4} < set(loop.output_bytes)
    assert None not in loop.output_bytes
    assert graph.edge_bytes_known_share == 1.0
    # Per word: (32, 4) times (4, 32) and (32, 8) times (8, 32); as much again for activations.
    products = 6 * 2 * BATCH * 32 * (4 + 8)
    assert products < (loop.flops or 0) < 3 * products
    assert loop.bytes_accessed is not None


def test_what_loops_put_out_has_the_shape_of_what_was_put_in_unless_it_grows(graph_of):
    graph = graph_of("loop.pb")
    loop = _only(graph, "While")
    assert loop.trips == 3
    assert loop.output_bytes == (BATCH * 4 * 4,)
    assert 3 * 2 * BATCH * 4 * 4 < (loop.flops or 0) < 3 * 2 * BATCH * 4 * 4 + 20
    assert graph.edge_bytes_known_share == 1.0

    loop = _only(graph_of("growing.pb"), "While")
    assert loop.output_bytes == (None,)
    assert loop.bytes_accessed is None
    graph = graph_of("array.pb")
    assert _only(graph, "TensorArrayGatherV3").output_bytes == (5 * BATCH * 4 * 4,)
    assert _only(graph, "While").flops == 5 * (BATCH * 4 + 2)
    graph = graph_of("lookup")
    assert _only(graph, "LookupTableFindV2").output_bytes == (BATCH * 4 * 8,)
    assert _only(graph, "ResourceGather").output_bytes == (BATCH * 4 * 5 * 4,)
