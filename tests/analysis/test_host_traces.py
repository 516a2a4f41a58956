"""What a host simulates that splits the layers: its share, or a batch for each of its devices."""

from __future__ import annotations

from dataclasses import replace

from split_steps import split_towers, two_towers

from placement_advisor.analysis.compare_hardware import HostTraces
from placement_advisor.candidates.batch_split.split_graph import unsplit
from placement_advisor.errors import BatchSplitError

WHOLE = unsplit(two_towers(8), 8)
FEW, ODD = BatchSplitError("too few samples"), BatchSplitError("it takes no such batch")
SPLITS = {2: split_towers(2), 4: FEW}
LARGER = {2: two_towers(16), 4: ODD}
TRACES = HostTraces(WHOLE, SPLITS, LARGER)


def samples(traces):
    (share,) = traces.wiring.shares
    (graph,) = traces.replicas
    assert graph.op("left/x").output_bytes == (64 * share,)
    return share


def test_hosts_share_the_batch_or_have_one_for_each_device():
    assert samples(TRACES.strong(1)) == 8
    assert samples(TRACES.strong(2)) == 4
    assert samples(TRACES.weak(1, 2)) == samples(TRACES.weak(2, 2)) == 16
    # Whether the batch can be shared does not matter where it is not.
    assert TRACES.strong(4) is FEW
    assert samples(TRACES.weak(4, 2)) == 16
    assert TRACES.weak(1, 4) is ODD


def test_of_unequal_shares_the_largest_counts():
    even = split_towers(2)
    uneven = replace(
        even,
        shares={5: two_towers(5), 3: two_towers(3)},
        wiring=replace(even.wiring, shares=(5, 3)),
    )
    assert samples(TRACES._replace(splits={2: uneven}).strong(2)) == 5


def test_a_batch_that_cannot_be_split_leaves_one_host():
    alone = TRACES._replace(splits={2: FEW, 4: FEW})
    assert samples(alone.strong(1)) == 8
    assert samples(alone.weak(1, 2)) == 16
    assert alone.strong(2) is FEW
    assert alone.weak(2, 2) is FEW


def test_another_batch_is_a_share_of_it_or_a_multiple():
    assert samples(TRACES.another()) == 4
    alone = TRACES._replace(splits={2: FEW, 4: FEW})
    assert samples(alone.another()) == 16
    assert alone._replace(larger={2: ODD}).another() is None
