from types import SimpleNamespace

import pytest
from op_graphs import edge

from placement_advisor.analysis.balance import SplitSearch, memory_of, with_every_device
from placement_advisor.errors import BatchSplitError, TestbedError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed.benchmark import SilentProgress

US = 1_000


class FakeTestbed:
    """Takes for a step what a function of the shares says."""

    def __init__(self, step_us, devices=2):
        self.plan = SimpleNamespace(devices=[SimpleNamespace(name=f"d{i}") for i in range(devices)])
        self._step_us = step_us
        self.prepared = []
        self.ready = set()

    def add_program(self, name, bundle, graph):
        pass

    def prepare(self, label, device_of, program):
        self.prepared.append(_shares(label))
        self.ready.add(_shares(label))

    def call(self, function, label):
        assert function.__name__ == "discard"
        self.ready.remove(_shares(label))

    def run_steps(self, label, batch, steps):
        shares = _shares(label)
        assert shares in self.ready
        step_us = self._step_us(*shares)
        if step_us < 0:
            return CallFailure(cause=FailureCause.CRASHED, message="no memory")
        return [round(step_us * US)] * steps


def _shares(label):
    return tuple(map(int, label.split(":")))


def fake_split(samples):
    if samples[-1] == 1:
        raise BatchSplitError("another graph")
    placed = SimpleNamespace(device_of={})
    split = SimpleNamespace(graph=None, placed=lambda *_, **__: placed)
    return SimpleNamespace(graphs={"batch": split}), "folder"


def splits_of(testbed, *most):
    limits = most or (None,) * len(testbed.plan.devices)
    return SplitSearch(testbed, fake_split, limits, SilentProgress())


def test_samples_move_to_the_faster_device_until_nothing_gets_shorter():
    # 10 µs a sample here, 30 µs there, and 60 µs for merging there.
    testbed = FakeTestbed(lambda a, b: max(10 * a, 30 * b + 60))
    splits = splits_of(testbed)
    splits.time([(16, 16)])
    best = splits.search((18, 14))
    assert splits.tried()[best] == min(max(10 * a, 30 * (32 - a) + 60) for a in range(1, 32)) * US
    assert len(set(testbed.prepared)) <= 12
    assert testbed.ready == {best}


def test_samples_move_in_pairs_to_faster_devices_within_what_can_be_split():
    testbed = FakeTestbed(lambda a, b, c: 10 * a + 10 * b + 20 * c, devices=3)
    best = splits_of(testbed).search((10, 10, 10))
    assert best[2] < 10
    assert sum(best) == 30
    testbed = FakeTestbed(lambda a, b: 1000 - a)
    best = splits_of(testbed).search((28, 4))
    assert best[1] == 2
    with pytest.raises(BatchSplitError, match="another graph"):
        splits_of(FakeTestbed(lambda a, b: 1)).search((31, 1))
    with pytest.raises(TestbedError, match="16:16: the step does not run: no memory"):
        splits_of(FakeTestbed(lambda a, b: -1)).time([(16, 16)])
    assert with_every_device((30, 0, 2)) == (29, 1, 2)
    assert with_every_device((0, 0, 32)) == (1, 1, 30)
    assert with_every_device((4, 28)) == (4, 28)


def test_no_device_is_given_more_than_its_memory_holds():
    testbed = FakeTestbed(lambda a, b: 1000 - a)
    splits = splits_of(testbed, 20, None)
    assert splits.fit((20, 12))
    assert not splits.fit((21, 11))
    assert splits.search((18, 14)) == (20, 12)
    assert all(splits.fit(samples) for samples in testbed.prepared)


def test_memory_is_what_the_step_holds_on_one_device_at_each_batch():
    def step(samples):
        ops = [
            Op("w", "VarHandleOp", Role.VARIABLE, parameter_bytes=5000, output_bytes=(0,)),
            Op("x", "Placeholder", Role.INPUT, output_bytes=(100 * samples,)),
            Op("y", "MatMul", output_bytes=(300 * samples,)),
        ]
        edges = [edge("w", "y", size_bytes=0), edge("x", "y", size_bytes=100 * samples)]
        return OpGraph(ops, edges)

    found = memory_of({32: step(32), 16: step(16), 8: step(8)})
    assert (found.fixed_bytes, found.per_sample_bytes) == (5000, 400)
