from dataclasses import replace

from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.testbed_plan import HostLink, HostShare, TestbedKind, plan_hosts
from placement_advisor.machine.this_machine import core_slots, gpu_slots

HERE = HostShare(
    name="localhost", address="10.0.0.1", slots=core_slots((0, 1)), fingerprint="f", is_here=True
)
AWAY = HostShare(
    name="b", address="10.0.0.2", slots=core_slots((3,)), fingerprint="g", is_here=False
)
MEMORY_BYTES = 40 << 30
A100 = Gpu(index=0, name="NVIDIA A100", memory_bytes=MEMORY_BYTES)
T4 = Gpu(index=1, name="Tesla T4", memory_bytes=16 << 30)


def test_devices_of_hosts_are_numbered_on_each():
    plan = plan_hosts((HERE, AWAY), HostLink.TLS)
    assert plan.kind is TestbedKind.HOSTS
    assert [device.name for device in plan.devices] == ["localhost:0", "localhost:1", "b:0"]
    assert plan.slots == core_slots((0, 1, 3))
    assert plan.stand_in
    assert plan.description == (
        "3 CPU stand-ins on 2 hosts (localhost: 2, b: 1; 1 core each, gRPC, TLS)"
    )
    assert plan.warnings == ()

    description = plan_hosts((HERE,), HostLink.TLS).description
    assert description == "2 CPU stand-ins on 1 host (localhost: 2; 1 core each, gRPC, TLS)"


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
        ("localhost:0", "GPU", MEMORY_BYTES),
        ("localhost:1", "GPU", MEMORY_BYTES),
        # Which of its two sorts it is depends on how CUDA numbers them.
        ("b:0", "GPU", None),
    ]
    assert plan.description == (
        "3 GPUs on 2 hosts (localhost: 2 NVIDIA A100, b: 1; 1 process each, gRPC, TLS)"
    )


def test_a_step_as_it_is_compares_with_gpus_of_the_machine_where_it_runs():
    on_gpus = [replace(host, slots=gpu_slots(1)) for host in (HERE, AWAY)]
    assert plan_hosts(tuple(on_gpus), HostLink.TLS).runs_as_is
    assert not plan_hosts(tuple(on_gpus[::-1]), HostLink.TLS, 1_200_000).runs_as_is
    assert plan_hosts((AWAY, HERE), HostLink.TLS, 1_200_000).runs_as_is
