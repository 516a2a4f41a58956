"""Analyses of any size with any names."""

from dataclasses import replace

from sample_analysis import sample
from sample_values import measurement, step_profile

from placement_advisor.analysis.analysis_result import Candidate
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.measurement.measurement import compare
from placement_advisor.report.pictures.timeline_plot import simulated_spans
from placement_advisor.simulator.schedule import (
    OpRun,
    Schedule,
    Transfer,
    copy_intervals,
    exposed_by_device,
)

_OPS = 12


def made_up(*, candidates=5, devices=2, step_ns=30_000_000, behind_names="", ran=True):
    """Return an analysis whose candidates take turns on devices and copy to the next one.

    Each is a tenth of ``step_ns`` slower than the one before; what is behind names makes them long.
    """
    plain = sample()
    names = tuple(f"worker:{number}{behind_names}" for number in range(devices))
    schedules = [
        _schedule(
            f"split-{number}{behind_names}" if number else "single",
            names[:1] if number == 0 else names,
            names,
            round(step_ns * (1 + number / 10)),
            behind_names,
        )
        for number in range(candidates)
    ]
    cluster = Cluster(devices=tuple(Device(name=name, kind="CPU") for name in names), links=())
    return replace(
        plain,
        title=f"model{behind_names}",
        testbed=replace(plain.testbed, cluster=cluster),
        as_is=plain.as_is if ran else None,
        candidates=tuple(_candidate(schedule, schedules[0], ran) for schedule in schedules),
    )


def _schedule(label, used, names, step_ns, behind_names):
    turn_ns = step_ns // _OPS
    busy_ns = turn_ns * 3 // 4
    runs, copies = [], []
    for device, target in zip(used, (*used[1:], used[0]), strict=True):
        for start_ns in range(0, _OPS * turn_ns, turn_ns):
            op = f"model/layer_{start_ns // turn_ns}/MatMul{behind_names}"
            times = {"start_ns": start_ns, "end_ns": start_ns + busy_ns}
            runs.append(OpRun(op=op, device=device, ready_ns=start_ns, **times))
            times = {"start_ns": start_ns + busy_ns, "end_ns": start_ns + turn_ns}
            ends = {"source": device, "target": target}
            copies.append(Transfer(producer=op, port=0, size_bytes=1_000, **ends, **times))
    copies = copies if len(used) > 1 else []
    compute_ns = dict.fromkeys(names, 0) | dict.fromkeys(used, _OPS * busy_ns)
    return Schedule(
        label=label,
        runs=tuple(runs),
        transfers=tuple(copies),
        step_ns=step_ns,
        compute_ns=compute_ns,
        exposed_by_device=exposed_by_device(runs, copy_intervals(tuple(copies)), names),
        peak_memory={},
    )


def _candidate(schedule, single, ran):
    rounds, single_rounds = (
        tuple((each.step_ns + drift,) for drift in range(20)) for each in (schedule, single)
    )
    is_split = schedule is not single
    return Candidate(
        name=schedule.label,
        family=schedule.label,
        rationale="made up",
        predicted=schedule,
        measured=as_simulated(schedule, rounds) if ran else None,
        comparison=compare("single", single_rounds, rounds, among=1) if ran and is_split else None,
    )


def as_simulated(schedule, rounds, activities=()):
    """Return a run whose profiled step is the simulated one."""
    profile = step_profile(
        schedule.step_ns,
        compute_ns=schedule.compute_ns,
        exposed_by_device=schedule.exposed_by_device,
        activities=activities,
        timeline=simulated_spans(schedule),
    )
    return measurement(rounds, profile=profile)
