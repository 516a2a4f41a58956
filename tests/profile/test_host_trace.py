"""Workers on gRPC: copies joined across their profiles, and why each of them computed nothing."""

import pytest
from recorded_profiles import event, host, mark, trace_of, write

from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import Cause, DeviceUse, Route
from placement_advisor.profile.totals import totals_of
from placement_advisor.profile.xplane import Line, Plane

US = 1_000


def ran(op, start_us, end_us):
    return event(op, round(start_us * US), round(end_us * US))


def arrived(node, at_us):
    return event(
        "ExecutorState::ProcessAsync::Done",
        round(at_us * US),
        round(at_us * US) + 100,
        name=node,
        kernel_type="_Recv",
    )


def read(folder, steps=((0, 1000),), **threads):
    """Read profiles of workers, and of a client with the marks of the steps."""
    marks = [mark(i, round(a * US), round(b * US)) for i, (a, b) in enumerate(steps)]
    write(folder / "client.xplane.pb", host(marks))
    for name, events in threads.items():
        write(folder / f"{name}.xplane.pb", host(events))
    return totals_of(trace_of(folder))


def causes(profile, device):
    return {
        (wait.cause, wait.what, wait.where): wait.time_ns
        for wait in profile.waits
        if wait.device == device
    }


def test_a_copy_and_all_that_its_target_waits_for_have_names(tmp_path):
    profile = read(
        tmp_path,
        a=[ran("x:MatMul", 10, 400), ran("x_S4:_Send", 410, 412), ran("y:Add", 420, 900)],
        b=[arrived("x_S5", 600), ran("z:MatMul", 605, 700)],
    )
    (route,) = profile.routes
    assert route.route == Route("a", "b", CopyKind.WORKER)
    assert (route.count, route.of_unknown_size, route.time_ns) == (1, 1, 190 * US)
    # Nothing hides it: b computes nothing meanwhile.
    assert route.exposed_ns == 190 * US
    assert [tensor.tensor for tensor in profile.tensors] == ["x"]
    assert causes(profile, "b") == {
        (Cause.OP, "x", "a"): 410 * US,
        (Cause.COPY, "x", "a"): 190 * US,
        (Cause.START, "z", "b"): 5 * US,
        (Cause.OP, "y", "a"): 200 * US,
        (Cause.CLIENT, "", ""): 100 * US,
    }
    waits = causes(profile, "a")
    assert waits == {(Cause.CLIENT, "", ""): (10 + 100) * US, (Cause.START, "y", "a"): 20 * US}
    assert profile.explained_shares == {"a": 1, "b": 1}


def test_a_long_gap_without_a_cause_is_unexplained_unless_the_core_was_sending(tmp_path):
    sent = ran("x:MatMul", 0, 100), ran("x_S4:_Send", 100, 101)
    profile = read(
        tmp_path,
        a=[*sent, ran("y:Add", 500, 600), ran("w:Add", 900, 1000)],
        b=[arrived("x_S5", 450), ran("z:Add", 450, 1000)],
    )
    assert causes(profile, "a") == {
        (Cause.SENDING, "x", "b"): 350 * US,
        (Cause.START, "y", "a"): 50 * US,
        (Cause.UNEXPLAINED, "", ""): 300 * US,
    }
    assert profile.explained_shares["a"] == pytest.approx(0.7)


def test_an_executor_at_work_runs_ops_that_leave_no_event(tmp_path):
    profile = read(
        tmp_path,
        a=[ran("x:Add", 0, 100), ran("ExecutorState::Process", 90, 890), ran("y:Add", 900, 1000)],
    )
    assert causes(profile, "a") == {(Cause.START, "y", "a"): 800 * US}


def test_a_collective_waits_for_others_and_is_no_compute(tmp_path):
    first, last = ran("x:Add", 0, 100), ran("y:Add", 900, 1000)
    collective = ran("sum:CollectiveReduceV2", 500, 900)
    profile = read(tmp_path, a=[first, collective, last], b=[first, last])
    assert causes(profile, "a") == {(Cause.OP, "sum", ""): 400 * US}
    total = profile.devices[0].total
    assert total[DeviceUse.COMPUTE].time_ns == 200 * US
    assert total[DeviceUse.COLLECTIVE].time_ns == 400 * US


def test_a_send_without_event_begins_when_its_op_ends_and_a_copied_profile_is_none(
    tmp_path,
):
    profile = read(
        tmp_path,
        a=[ran("loss:Mul", 100, 150)],
        b=[arrived("loss_S9", 400), ran("z:Add", 400, 1000)],
    )
    (route,) = profile.routes
    assert route.route.source == "a"
    assert route.time_ns == 250 * US

    (tmp_path / "a.xplane.pb").unlink()
    (tmp_path / "b.xplane.pb").unlink()
    worker = host([mark(0, 0, 100 * US), ran("x:Add", 0, 100)])
    for name in ("client", "worker-0"):
        write(tmp_path / f"{name}.xplane.pb", worker)
    profile = totals_of(trace_of(tmp_path))
    assert [device.device for device in profile.devices] == ["worker-0"]


@pytest.mark.parametrize(("others", "source"), [(["a"], "a"), (["a", "c"], "unknown")])
def test_a_tensor_that_no_profile_names_came_from_the_only_other_process(tmp_path, others, source):
    busy = {name: [ran("y:Add", 0, 100)] for name in others}
    profile = read(tmp_path, b=[arrived("few_S9", 400), ran("z:Add", 400, 900)], **busy)
    (route,) = profile.routes
    assert route.route == Route(source, "b", CopyKind.WORKER)
    # Nobody knows when it set out.
    assert (route.count, route.time_ns) == (1, 0)


def test_copies_of_a_tensor_are_joined_step_by_step(tmp_path):
    # The send of the second step has left no event of its own.
    profile = read(
        tmp_path,
        [(0, 100), (100, 200), (200, 300)],
        a=[ran("x_S4:_Send", 10, 11), ran("y:Add", 0, 300), ran("x_S4:_Send", 210, 211)],
        b=[arrived("x_S5", at) for at in (50, 150, 250)] + [ran("z:Add", 250, 300)],
    )
    (route,) = profile.routes
    assert (route.count, route.time_ns) == (3, 2 * 40 * US)
    assert route.per_step.count == 1


def test_a_wait_between_steps_is_for_the_client(tmp_path):
    profile = read(
        tmp_path,
        [(0, 100), (200, 300), (500, 600)],
        a=[ran("x:Add", at, at + 100) for at in (0, 200, 500)],
    )
    assert profile.warm_up_steps == 1
    assert profile.step_ns == (300 * US, 100 * US)
    assert causes(profile, "a") == {(Cause.CLIENT, "", ""): 200 * US}
    assert profile.devices[0].per_step[DeviceUse.COMPUTE].time_ns == 100 * US


def test_ops_on_several_threads_count_once_and_input_pipelines_and_other_planes_do_not(tmp_path):
    threads = host(
        [mark(0, 0, 100)],
        Line(name="tf_data_iterator", events=(event("c:C", 0, 100),)),
        [event("a:A", 0, 60)],
        [event("b:B", 40, 90)],
    )
    write(tmp_path / "one.xplane.pb", threads, Plane(name="Task Environment"))
    profile = totals_of(trace_of(tmp_path))
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 90
    assert {row.name for row in profile.activities} == {"A", "B"}

    other = Line(name="copied", events=(event("d:D", 0, 100),))
    threads = host([mark(0, 0, 100)], [event("a:A", 0, 60)])
    write(tmp_path / "one.xplane.pb", Plane(name="/host:metadata", lines=(other,)), threads)
    profile = totals_of(trace_of(tmp_path))
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 60
    assert [row.name for row in profile.activities] == ["A"]
