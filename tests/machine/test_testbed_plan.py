"""Devices of a testbed and what is said of them, and a machine that others keep busy."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest
from sample_hosts import A, B

from placement_advisor.machine import this_machine
from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.testbed_plan import (
    HostLink,
    TestbedKind,
    plan_hosts,
    plan_testbed,
    with_load,
)
from placement_advisor.machine.this_machine import (
    Cores,
    OtherWork,
    core_slots,
    gpu_slots,
    is_busy,
    other_work,
)

HERE, AWAY = A, replace(B, slots=core_slots((3,)))
MEMORY_BYTES = 40 << 30
A100 = Gpu(index=0, name="NVIDIA A100", memory_bytes=MEMORY_BYTES)
T4 = Gpu(index=1, name="Tesla T4", memory_bytes=16 << 30)


def test_devices_of_hosts_are_numbered_on_each():
    plan = plan_hosts((HERE, AWAY), HostLink.TLS)
    assert plan.kind is TestbedKind.HOSTS
    assert [device.name for device in plan.devices] == ["a:0", "a:1", "b:0"]
    assert plan.slots == core_slots((0, 1, 3))
    assert plan.stand_in
    assert plan.description == "3 CPU stand-ins on 2 hosts (a: 2, b: 1; 1 core each, gRPC, TLS)"
    assert plan.warnings == ()

    description = plan_hosts((HERE,), HostLink.TLS).description
    assert description == "2 CPU stand-ins on 1 host (a: 2; 1 core each, gRPC, TLS)"


def test_open_servers_and_the_way_to_a_first_host_elsewhere_are_said():
    (warning,) = plan_hosts((HERE, AWAY), HostLink.DIRECT).warnings
    assert "without authentication" in warning
    assert warning.endswith("(--link direct)")
    plan = plan_hosts((AWAY, replace(HERE, is_here=False)), HostLink.TLS, 1_200_000)
    (warning,) = plan.warnings
    assert warning.startswith("every step waits 1.20 ms for the way from here to host b and back")


def test_gpus_of_hosts_are_no_stand_ins_and_are_named_where_they_are_alike():
    here = replace(HERE, slots=gpu_slots(2), gpus=Gpus(devices=(A100, replace(A100, index=1))))
    away = replace(AWAY, slots=gpu_slots(1), gpus=Gpus(devices=(A100, T4)))
    plan = plan_hosts((here, away), HostLink.TLS)
    assert plan.kind is TestbedKind.HOSTS
    assert plan.on_gpus
    assert not plan.stand_in
    assert plan.slots == (*gpu_slots(2), *gpu_slots(1))
    assert [(device.name, device.kind, device.memory_bytes) for device in plan.devices] == [
        ("a:0", "GPU", MEMORY_BYTES),
        ("a:1", "GPU", MEMORY_BYTES),
        # Which of its two sorts it is depends on how CUDA numbers them.
        ("b:0", "GPU", None),
    ]
    said = "3 GPUs on 2 hosts (a: 2 NVIDIA A100, b: 1; 1 process each, gRPC, TLS)"
    assert plan.description == said


def test_a_step_as_it_is_compares_with_gpus_of_the_machine_where_it_runs():
    on_gpus = [replace(host, slots=gpu_slots(1)) for host in (HERE, AWAY)]
    assert plan_hosts(tuple(on_gpus), HostLink.TLS).runs_as_is
    assert not plan_hosts(tuple(on_gpus[::-1]), HostLink.TLS, 1_200_000).runs_as_is
    assert plan_hosts((AWAY, HERE), HostLink.TLS, 1_200_000).runs_as_is


@pytest.mark.parametrize(
    ("load", "cores", "busy"),
    # Of four cores two may be busy, of two none; half a process is what clocks and cron take.
    [(0.4, 2, False), (0.5, 2, True), (2.4, 4, False), (2.5, 4, True), (3.0, 1, True)],
)
def test_a_load_is_too_much_where_it_takes_half_a_core_from_a_device(load, cores, busy):
    assert is_busy(load, cores, devices=2) is busy


def test_who_times_on_a_busy_machine_is_told_at_the_start_and_in_the_report(monkeypatch):
    monkeypatch.setattr(this_machine, "other_work", lambda: OtherWork(cores=6.18, busiest="stress"))
    four = Cores(machine=4, allowed=4, physical=4, quota=None)
    monkeypatch.setattr(this_machine, "find_cores", lambda: four)
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
