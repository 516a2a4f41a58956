"""Values that samples of many tests are made of; what a test does not name has no part in it."""

from itertools import permutations

from placement_advisor.cost.table import CostTable, OpCost
from placement_advisor.machine.devices import Basis, Link
from placement_advisor.measurement.measurement import Measurement, StepProfile


def measurement(rounds, **more):
    """Return a run with these times of steps, in each round."""
    nothing = dict.fromkeys(("verification", "profile", "profile_run"))
    return Measurement(**nothing | {"rounds": rounds, "warmup_ns": (), "moved_ops": ()} | more)


def step_profile(*step_ns, **more):
    """Return the profile of steps that took these times."""
    nothing = {"compute_ns": {}, "exposed_by_device": {}, "op_ns": {}}
    nothing |= {"transfers": (), "activities": (), "timeline": ()}
    return StepProfile(**nothing | {"step_ns": step_ns} | more)


def links_between(devices, latency_ns, **more):
    """Return a link from each to each, over which a byte takes a nanosecond."""
    more = {"bandwidth_bytes_per_s": 1e9, "basis": Basis.ASSUMED, "latency_ns": latency_ns} | more
    ends = permutations(devices, 2)
    return tuple(Link(source=source, target=target, **more) for source, target in ends)


def costs_of(times_ns, basis):
    """Return the costs of ops, all known in the same way."""
    costs = {name: OpCost(time_ns=ns, basis=basis) for name, ns in times_ns.items()}
    return CostTable(costs=costs)
