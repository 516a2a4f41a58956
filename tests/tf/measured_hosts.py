"""How hosts are measured: on networks that are known, and with clocks that are read inside."""

import time
from unittest.mock import patch

import tensorflow as tf

from placement_advisor.machine.calibration import CopyTiming
from placement_advisor.tf.run import calibration, graph_timing

_ENDS = ("a:0", "b:0")


def sizes_measured(one_way_ns, ns_per_byte):
    """Return the sizes that are measured over a network, and how, in two passes alike."""
    asked = []

    def round_trip(_, ends, size_bytes, effort, message_ns):
        assert (ends, message_ns) == (_ENDS, one_way_ns)
        asked.append((size_bytes, effort))
        copy_ns = one_way_ns + round(ns_per_byte * size_bytes)
        return CopyTiming(size_bytes=size_bytes, copy_ns=copy_ns, send_ns=None, receive_ns=None)

    efforts = {}
    with patch.object(calibration, "round_trip", round_trip):
        first = calibration._round_trips(None, _ENDS, one_way_ns, efforts)
        again = calibration._round_trips(None, _ENDS, one_way_ns, efforts)
    assert first == again
    half = len(asked) // 2
    assert asked[:half] == asked[half:]
    return asked[:half]


def passes_made(each_s):
    """Return how often something is measured that takes so long."""
    now_s = [0.0]

    def pass_on():
        now_s[0] += each_s

    with patch.object(calibration.time, "monotonic", lambda: now_s[0]):
        return len(calibration._passes(pass_on))


def second_pair(one, other):
    """Return the devices that copy beside the first ones of hosts that have so many."""
    names = [tuple(f"{host}:{i}" for i in range(n)) for host, n in (("a", one), ("b", other))]
    return calibration._second_pair(*names)


def own_reading(carriers):
    """Return what an op reads of this process and carriers, between two readings without one."""
    token = graph_timing.offer_core_clock(carriers)
    with tf.Graph().as_default() as graph:
        reading = graph_timing.read_core_clock(token)
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(reading)
        before_ns = time.process_time_ns() + sum(map(_outside, carriers))
        read_ns = int(session.run(reading))
        return before_ns, read_ns, time.process_time_ns() + sum(map(_outside, carriers))


def _outside(process):
    """Return the processor time of another process.

    Source: clock_getcpuclockid(3), whose Linux implementation this is; Python does not have it.
    """
    processor_time = 2
    return time.clock_gettime_ns((~process << 3) | processor_time)
