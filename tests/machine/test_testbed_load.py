"""A machine that others keep busy: whoever times steps on it is told."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from placement_advisor.machine import this_machine
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed, with_load
from placement_advisor.machine.this_machine import Cores, OtherWork, is_busy, other_work

FOUR_CORES = Cores(machine=4, allowed=4, physical=4, quota=None)


@pytest.mark.parametrize(
    ("load", "cores", "busy"),
    # Of four cores two may be busy, of two none; half a process is what clocks and cron take.
    [(0.4, 2, False), (0.5, 2, True), (2.4, 4, False), (2.5, 4, True), (3.0, 1, True)],
)
def test_a_load_is_too_much_where_it_takes_half_a_core_from_a_device(load, cores, busy):
    assert is_busy(load, cores, devices=2) is busy


def test_who_times_on_a_busy_machine_is_told_at_the_start_and_in_the_report(monkeypatch):
    monkeypatch.setattr(this_machine, "other_work", lambda: OtherWork(cores=6.18, busiest="stress"))
    monkeypatch.setattr(this_machine, "find_cores", lambda: FOUR_CORES)
    plan = plan_testbed(TestbedKind.LOGICAL_CPUS, 2)
    told = []
    busy = with_load(plan, told.append)
    assert told == [f"warning: {warning}" for warning in busy.warnings]
    assert "other work keeps this machine busy: it uses 6.2 cores, most by stress." in told[0]
    # Who times nothing does not mind, nor who has cores enough.
    predicted = replace(plan, not_run="--no-run: no step was executed")
    assert with_load(predicted, told.append).warnings == ()
    monkeypatch.setattr(this_machine, "other_work", lambda: OtherWork(cores=2.1))
    assert with_load(plan, told.append) == plan
    assert len(told) == 1


def counted(proc, busy, ticks, parents):
    """Write the kernel's counters: of one CPU, idle for 900 ticks, and of processes."""
    cpu = min(os.sched_getaffinity(0))
    (proc / "stat").write_text(f"cpu 1 1 1 1\ncpu{cpu} {busy} 0 0 900 50 0 0 0 9 9\nintr 1\n")
    for pid, spent in ticks.items():
        (proc / str(pid)).mkdir(exist_ok=True)
        rest = ["S", parents.get(pid, 1), *[0] * 9, spent, 0, *[0] * 23, cpu]
        (proc / str(pid) / "stat").write_text(f"{pid} (p {pid}) ) {' '.join(map(str, rest))}\n")


@pytest.mark.parametrize(("quota", "cores"), [(None, 1.2), (1, 0.9)])
def test_only_what_other_processes_do_now_is_load(monkeypatch, tmp_path, quota, cores):
    ours, child, idle, new, busy = os.getpid(), 4_000_001, 4_000_002, 4_000_003, 4_000_004
    parents = {child: ours}
    counted(tmp_path, 1000, {ours: 50, child: 0, idle: 9_000, busy: 700}, parents)
    monkeypatch.setattr(this_machine, "_PROC", tmp_path)
    monkeypatch.setattr(this_machine, "quota_cores", lambda: quota)
    # A minute's average that an installation has left behind counts no more.
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    clock = iter([5.0, 6.0])
    monkeypatch.setattr(this_machine.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    # In one second, of 100 ticks: 10 ours, 60 our child's, 90 of others, 30 of none that is seen.
    after = {ours: 60, child: 60, idle: 9_000, busy: 770, new: 20}
    sleeps = lambda _: counted(tmp_path, 1190, after, parents)  # noqa: E731
    monkeypatch.setattr(this_machine.time, "sleep", sleeps)
    found = other_work()
    assert found.cores == pytest.approx(cores)
    assert found.busiest == f"p {busy})  (process {busy}, 70% of a core)"


def test_an_idle_machine_is_not_called_busy_for_what_has_ended(monkeypatch, tmp_path):
    counted(tmp_path, 1000, {os.getpid(): 50}, {})
    monkeypatch.setattr(this_machine, "_PROC", tmp_path)
    monkeypatch.setattr(this_machine, "other_work", other_work)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    told = []
    assert with_load(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), told.append).warnings == ()
    assert told == []


def test_work_on_this_machine_is_seen():
    # A shell that ends leaves it to others: it is no process of ours.
    spins = "while :; do :; done >/dev/null & echo $!"
    ran = subprocess.run(["bash", "-c", spins], stdout=subprocess.PIPE, text=True, check=True)
    try:
        found = other_work()
    finally:
        os.kill(int(ran.stdout), signal.SIGKILL)
    assert found.cores > 0.2
    assert found.busiest is not None
