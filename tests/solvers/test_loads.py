"""What ops and copies load a device with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_problems import chain

from placement_advisor.solvers.problem import Pool
from placement_advisor.solvers.throughput.loads import bundles, device_loads, largest_load, loads


def test_a_cut_chain_by_hand() -> None:
    # op0 2, op1 3 | op2 6: op1's tensor, 1, is sent by the first device and received by the second.
    found = loads(chain(2.0, 3.0, 6.0), ("d0", "d0", "d1"))
    assert (found["d0"].work, found["d0"].copies, found["d0"].held_bytes) == (5.0, 1.0, 2)
    assert (found["d1"].work, found["d1"].copies, found["d1"].held_bytes) == (6.0, 1.0, 1)
    assert largest_load(chain(2.0, 3.0, 6.0), ("d0", "d0", "d1")) == 7.0


def test_a_tensor_is_sent_once_and_received_once_by_each_device_that_reads_it() -> None:
    # op0 is read by op1 and op2 on d1, and by op3 on d2.
    problem = replace(chain(1.0, 1.0, 1.0, 1.0, devices=3), edges=((0, 1), (0, 2), (0, 3)))
    found = loads(problem, ("d0", "d1", "d1", "d2"))
    assert [found[name].copies for name in ("d0", "d1", "d2")] == [1.0, 1.0, 1.0]


def test_a_device_that_does_not_pay_for_copies_has_work_alone() -> None:
    problem = chain(2.0, 3.0)
    free = Pool(devices=("cpu",), work=(4.0, 6.0), pays_for_copies=False)
    problem = replace(problem, pools=(*problem.pools, free))
    found = loads(problem, ("d0", "cpu"))
    assert (found["cpu"].copies, found["d0"].copies) == (0.0, 1.0)


def test_an_op_where_it_cannot_run_is_refused() -> None:
    problem = chain(1.0, 1.0)
    problem = replace(problem, pools=(Pool(devices=("d0",), work=(1.0, None)),))
    with pytest.raises(ValueError, match="op 'op1' cannot run on 'd0'"):
        loads(problem, ("d0", "d0"))


def test_loads_by_op_are_those_by_group() -> None:
    problem = replace(chain(2.0, 3.0, 6.0), groups=((0, 1), (2,)))
    assert device_loads(problem, ("d0", "d0", "d1")) == loads(problem, ("d0", "d1"))


def test_tensors_from_one_group_to_the_same_groups_are_one_bundle() -> None:
    problem = replace(chain(1.0, 1.0, 1.0), edges=((0, 2), (1, 2)), groups=((0, 1), (2,)))
    (bundle,) = bundles(problem)
    assert (bundle.home, bundle.readers, bundle.copy_time) == (0, (1,), 2.0)
