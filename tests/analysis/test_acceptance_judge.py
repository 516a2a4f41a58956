"""The known step on two GPUs, as TensorFlow and CUPTI would record it: built by hand.

No profile of TensorFlow with copies between GPUs is public, and none was recorded here.
"""

import gzip
import json
import zipfile
from dataclasses import dataclass, replace

import jsonschema
import numpy as np
import pytest
import sample_hosts
from recorded_profiles import crossing, event, gpu, host, write

from placement_advisor.analysis.acceptance import (
    Acceptance,
    AcceptanceCheck,
    Cards,
    CheckOutcome,
    judge_placement,
    judge_profile,
    judge_values,
    planned_pairs,
)
from placement_advisor.files.contract import plain
from placement_advisor.graph.op import Kernel, KernelFamily, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device
from placement_advisor.machine.machine_facts import examine
from placement_advisor.machine.testbed_plan import HostLink, TestbedKind, plan_hosts, plan_testbed
from placement_advisor.machine.this_machine import gpu_slots
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.profile.xplane_schema import new_space
from placement_advisor.report.machine_texts import render_acceptance, write_bundle
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.machine import Acceptance as Published
from placement_advisor.testbed.testbed import ProfileFiles
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.known_step import COPIES, LARGE_SIDE, OPS, SIDE, numbers, outputs, shift

STEPS = 3
STEP_US, EVERY_US = 900, 1_000
STEP_NS = 850_000
NUMBERS = {"GPU:0": 0, "GPU:1": 1}


@dataclass(frozen=True, slots=True)
class OnGpu:
    """An op or a copy on a GPU, in µs since the step began."""

    op: str
    gpu: int
    start_us: int
    end_us: int
    size_bytes: int | None = None
    name: str = "MemcpyP2P"
    dest: int | None = None


# What reads a copy is launched 40 µs after it ended.
KERNELS = (
    # No op of the known step, though its name begins as that of one.
    OnGpu("near/large_product/Read", 0, 18, 19),
    OnGpu("near/product_1", 0, 20, 30),
    OnGpu("near/product_2", 0, 30, 40),
    OnGpu("near/product_3", 0, 40, 50),
    OnGpu("near/row_sums", 0, 50, 55),
    OnGpu("near/large_product", 0, 55, 235),
    OnGpu("far/product_1", 1, 110, 120),
    OnGpu("far/product_2", 1, 120, 130),
    OnGpu("far/product_3", 1, 130, 140),
    OnGpu("far/sums_added", 1, 140, 145),
    OnGpu("far/large_sum", 1, 380, 400),
    OnGpu("far/large_product", 1, 400, 580),
    OnGpu("far/large_total", 1, 580, 600),
    OnGpu("near/last_product", 0, 240, 250),
    OnGpu("near/total", 0, 250, 255),
    OnGpu("near/large_sum", 0, 750, 770),
)
COPIED = (
    OnGpu("near/product_3", 0, 50, 70, 262_144, dest=1),
    OnGpu("near/row_sums", 0, 55, 60, 1_024, dest=1),
    OnGpu("near/large_product", 0, 235, 335, 4_194_304, dest=1),
    OnGpu("far/product_3", 1, 140, 160, 262_144, dest=0),
    OnGpu("far/sums_added", 1, 160, 180, 262_144, dest=0),
    OnGpu("far/large_total", 1, 600, 700, 4_194_304, dest=0),
)
# The input comes from the host, where a pipeline leaves it.
INPUT = OnGpu("near_input", 0, 5, 15, 262_144, name="MemcpyH2D")
CARDS = Cards("Tesla V100-SXM2-16GB", {("GPU:0", "GPU:1"): "OK"})
NO_ACCESS = CARDS._replace(peer_access={("GPU:0", "GPU:1"): "CNS"})
PLAN = replace(
    plan_testbed(None, 2),
    kind=TestbedKind.GPUS,
    devices=tuple(Device(name=name, kind="GPU") for name in NUMBERS),
    description="2 GPUs",
)
PREPARED = Prepared(
    moved_ops=(),
    crossings=tuple(
        crossing(each.op, f"GPU:{each.gpu}", f"GPU:{each.dest}", size_bytes=each.size_bytes)
        for each in COPIED
    ),
)
PRODUCT = Kernel(KernelFamily.LINEAR, (1, LARGE_SIDE, LARGE_SIDE, LARGE_SIDE))
GRAPH = OpGraph((Op(name, "MatMul", kernel=PRODUCT) for name in OPS), ())


def over_host(copies):
    """Return each copy in two parts, as without access to a peer's memory."""
    found = []
    for copy in copies:
        middle_us = (copy.start_us + copy.end_us) // 2
        found += [
            replace(copy, name="MemcpyD2H", dest=None, end_us=middle_us),
            replace(copy, name="MemcpyH2D", dest=None, gpu=copy.dest, start_us=middle_us),
        ]
    return tuple(found)


def run(
    folder,
    *,
    kernels=KERNELS,
    copies=COPIED,
    cards=CARDS,
    step_us=STEP_US,
    steps=STEPS,
    prepared=PREPARED,
):
    """Return what would be found of steps with these events."""
    path = folder / "gpus.xplane.pb"
    write(path, *_planes(kernels, (INPUT, *copies), step_us))
    (pair,) = planned_pairs(PLAN, GRAPH, cards, {})
    findings = (
        judge_placement(pair, prepared),
        judge_values(list(outputs().values())),
        *judge_profile(pair, read_gpu_steps(path, NUMBERS), steps, STEP_NS),
    )
    return replace(pair, findings=findings, files=ProfileFiles(client=path, devices={}))


def acceptance(*pairs):
    """Return what would be found of these."""
    return Acceptance(PLAN, GRAPH, pairs, {"ann": "user", "gpu-box": "machine"})


def _planes(kernels, copies, step_us):
    starts = [EVERY_US * step for step in range(STEPS)]
    marks = [_event("train", at, at + step_us, step_num=i) for i, at in enumerate(starts)]
    streams = {0: ([], []), 1: ([], [])}
    for at in starts:
        for each in kernels:
            ends_us = (at + each.start_us, at + each.end_us)
            found = _event("some_kernel", *ends_us, tf_op=f"{each.op}:MatMul")
            streams[each.gpu][0].append(found)
        for each in copies:
            ends_us = (at + each.start_us, at + each.end_us)
            details = "kind:pinned size:{}" if each.dest is None else "size:{} dest:{}"
            details = f"{details.format(each.size_bytes, each.dest)} async:1"
            edge = f"edge_7_{each.op}"
            found = _event(each.name, *ends_us, memcpy_details=details, edge_name=edge)
            streams[each.gpu][1].append(found)
    return [*(gpu(number, *found) for number, found in streams.items()), host(marks)]


def _event(name, start_us, end_us, **stats):
    return event(name, 1_000 * start_us, 1_000 * end_us, **stats)


def named(pair, outcome):
    return {each.name for each in pair.findings if each.outcome is outcome}


def words(pair, name):
    (found,) = (each.finding for each in pair.findings if each.name == name)
    return found


def published(tmp_path, *pairs):
    return Published.of(acceptance(*pairs), tmp_path / "it.zip")


def ops(op, **changes):
    return tuple(replace(each, **changes) if each.op == op else each for each in KERNELS)


def copied(op, **changes):
    return tuple(replace(each, **changes) if each.op == op else each for each in COPIED)


def test_a_right_profile_is_trusted(tmp_path):
    pair = run(tmp_path)
    assert named(pair, CheckOutcome.OK) == {each.name for each in pair.findings}
    assert words(pair, "copies") == "there 3 of 3, back 3 of 3"
    assert words(pair, "bytes") == "there 4,457,472 of 4,457,472, back 4,718,592 of 4,718,592"
    assert words(pair, "ops") == "15 of 15 seen in the profile"
    assert "by the op model of Tesla V100-SXM2-16GB (within 2.00)" in words(pair, "op times")
    assert published(tmp_path, pair).trusted


def test_copies_over_the_host_are_right_where_the_driver_gives_no_access(tmp_path):
    pair = run(tmp_path, copies=over_host(COPIED), cards=NO_ACCESS)
    assert named(pair, CheckOutcome.OFF) == set()
    assert words(pair, "copies") == "there 3 of 3, back 3 of 3"
    assert words(pair, "peer access") == "copies go over the host; the driver says CNS"


COPIES_THAT_LIE = {
    "a copy is missing": (COPIED[1:], {"copies", "bytes"}),
    "a copy is there twice": ((*COPIED, COPIED[1]), {"copies", "bytes"}),
    "a copy has other bytes": (copied("near/row_sums", size_bytes=1_020), {"bytes"}),
    "a copy is of no kind": (copied("far/product_3", name="MemcpyOther"), {"copies", "bytes"}),
    "a copy goes the other way": (copied("far/product_3", gpu=0, dest=1), {"copies", "bytes"}),
    "a tensor is sent before it is made": (copied("near/large_product", start_us=200), {"order"}),
    "a copy takes no time": (copied("near/row_sums", end_us=55), {"order"}),
    "copies go over the host with access": (over_host(COPIED), {"peer access"}),
}
OPS_THAT_LIE = {
    "an op is on the other device": (ops("far/sums_added", gpu=0), {"ops"}),
    "an op is missing": ([each for each in KERNELS if each.op != "far/product_2"], {"ops"}),
    "a tensor is read before it is made": (ops("far/product_1", start_us=44, end_us=48), {"order"}),
    "a tensor is read too early": (ops("near/last_product", start_us=150, end_us=160), {"order"}),
    "products take a tenth": (ops("far/large_product", start_us=400, end_us=418), {"op times"}),
}
LIES = {
    **{title: ({"copies": copies}, off) for title, (copies, off) in COPIES_THAT_LIE.items()},
    **{title: ({"kernels": kernels}, off) for title, (kernels, off) in OPS_THAT_LIE.items()},
    "copies go from GPU to GPU without access": ({"cards": NO_ACCESS}, {"peer access"}),
    "a step is missing": ({"steps": STEPS + 1}, {"steps"}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_profile_that_lies_is_found_out(tmp_path, lie):
    changes, off = LIES[lie]
    pair = run(tmp_path, **changes)
    assert named(pair, CheckOutcome.OFF) == off
    assert not published(tmp_path, pair).trusted


def test_marks_that_leave_out_most_of_a_step_are_found_out(tmp_path):
    pair = run(tmp_path, step_us=340)
    assert "the profile does not cover the steps" in words(pair, "steps")
    assert {"steps", "ops", "copies"} <= named(pair, CheckOutcome.OFF)


def test_what_tensorflow_moved_or_sends_besides_is_off(tmp_path):
    more = crossing("near/product_2", "GPU:0", "GPU:1", size_bytes=8)
    prepared = replace(
        PREPARED,
        moved_ops=("far/large_sum: task 0 GPU:1 → task 0 CPU:0", "near_input: a → b"),
        crossings=(*PREPARED.crossings[1:], more),
    )
    pair = run(tmp_path, prepared=prepared)
    assert named(pair, CheckOutcome.OFF) == {"placed"}
    assert words(pair, "placed") == (
        "14 of 15 ops where they were put; 5 of 6 tensors cross; TensorFlow moved "
        "far/large_sum: task 0 GPU:1 → task 0 CPU:0; near/product_2 leaves GPU:0 too; "
        "near/product_3 should leave GPU:0"
    )


def test_an_output_with_one_wrong_element_is_off():
    total, other = outputs().values()
    wrong = np.array(total)
    wrong[3, 4] += 1
    told = "1 of 2 outputs are what they must be, to the last bit"
    assert judge_values([wrong, other]) == AcceptanceCheck("values", CheckOutcome.OFF, told)


def test_what_nothing_is_known_of_is_unknown(tmp_path):
    pair = run(tmp_path, cards=Cards("NVIDIA GeForce GT 710"))
    assert named(pair, CheckOutcome.UNKNOWN) == {"op times", "peer access"}
    assert named(pair, CheckOutcome.OFF) == set()


def test_two_gpus_have_what_is_known_cores_what_a_product_takes_and_hosts_nothing():
    devices = tuple(Device(name=f"GPU:{number}", kind="GPU") for number in range(3))
    pairs = planned_pairs(replace(PLAN, devices=devices), GRAPH, CARDS, {})
    assert [(pair.title, pair.peer_access) for pair in pairs] == [
        ("GPU:0 and GPU:1", "OK"),
        ("GPU:0 and GPU:2", None),
        ("GPU:1 and GPU:2", None),
    ]
    assert all(pair.expected.keys() == {"GPU:0", "GPU:1", "GPU:2"} for pair in pairs)
    (pair,) = planned_pairs(PLAN, GRAPH, Cards(), {"GPU:0": 300_000, "GPU:1": 400_000})
    assert [time.time_ns for time in pair.expected.values()] == [300_000, 400_000]
    hosts = (replace(host, slots=gpu_slots(1)) for host in sample_hosts.TWO_HOSTS.hosts)
    (pair,) = planned_pairs(plan_hosts(tuple(hosts), HostLink.TLS), GRAPH, Cards(), {})
    assert (pair.expected, pair.peer_access) == ({}, None)


def test_the_text_ends_with_trust_or_with_what_is_off_and_on_which_devices(tmp_path):
    text = render_acceptance(published(tmp_path, run(tmp_path)))
    assert "\nuntried on GPUs: " in text
    assert text.endswith(
        f"\nbundle: {tmp_path / 'it.zip'}\n"
        "trust measurements from here: everything this machine can show is right\n"
    )
    assert max(map(len, text.splitlines()[:-3])) <= 100
    text = render_acceptance(published(tmp_path, run(tmp_path, copies=COPIED[1:])))
    assert text.splitlines()[-2:] == [
        "off: copies, bytes (GPU:0 and GPU:1)",
        f"do not trust measurements from here; attach {tmp_path / 'it.zip'} to an issue",
    ]


def test_the_json_keeps_its_contract(tmp_path):
    pair = run(tmp_path)
    failed = replace(pair, findings=(AcceptanceCheck("run", CheckOutcome.OFF, "no"),), files=None)
    content = plain(published(tmp_path, pair, failed))
    jsonschema.Draft202012Validator(load_schema("acceptance")).validate(content)
    assert (content["trusted"], content["untried_on_gpus"]) == (False, True)
    assert [len(each["findings"]) for each in content["pairs"]] == [9, 1]


def test_results_are_those_of_real_products():
    small, large = numbers(SIDE), numbers(LARGE_SIDE)
    moved = {count: small @ np.linalg.matrix_power(shift(SIDE), count) for count in (3, 6, 7)}
    large_once = large @ shift(LARGE_SIDE)
    large_total = large_once + large_once + large_once @ shift(LARGE_SIDE)
    expected = {
        "near/total": moved[7] + moved[6] + moved[3].sum(axis=1, keepdims=True),
        "near/large_sum": large_total + large_total,
    }
    assert outputs().keys() == expected.keys()
    for name, right in outputs().items():
        np.testing.assert_array_equal(right, expected[name])


def test_every_element_that_is_lost_or_misplaced_would_show():
    values = numbers(SIDE)
    for axis in (0, 1):
        assert (values != np.roll(values, 1, axis)).all()
    assert values.max() < 64  # Eight binary digits, as bfloat16 has them, hold it.


def test_every_copy_goes_from_an_op_on_one_side_to_ops_on_the_other():
    for copy in COPIES:
        assert {copy.producer, *copy.readers} <= set(OPS)
        side = copy.producer.partition("/")[0]
        assert not any(reader.startswith(side) for reader in copy.readers)


PROFILE = "profiles/GPU-0-and-GPU-1/client.xplane.pb"
# What a profiler may write down of a machine.
PRIVATE = (
    *("ann", "gpu-box", "/home/ann/model.py", "10.1.2.3", "fe80::1ff:fe23:4567:890a"),
    "/var/folders/x7/tmp",
)


@pytest.fixture
def pair(tmp_path):
    """A run on GPUs whose profile holds private texts wherever there is room for one."""
    found = run(tmp_path)
    path, space = found.files.client, new_space()
    space.ParseFromString(path.read_bytes())
    for field in (space.hostnames, space.errors, space.warnings):
        field.extend(PRIVATE)
    for plane in space.planes:
        for text in PRIVATE:
            number = max(plane.event_metadata, default=0) + 1
            plane.event_metadata[number].name = f"open {text}"
            plane.event_metadata[number].metadata = text.encode()
            plane.event_metadata[number].display_name = text
            plane.stat_metadata[900].name = text
            plane.stats.add(metadata_id=900, str_value=f"at {text}")
            plane.stats.add(metadata_id=900, bytes_value=text.encode())
            plane.lines.add(name=text, display_name=text)
    # A field of a later TensorFlow, which the schema here lacks: number 99, a text.
    path.write_bytes(space.SerializeToString() + b"\x9a\x06\x07gpu-box")
    return found


def bundle_of(pair, folder):
    path = folder / "it.zip"
    seen = acceptance(pair)
    write_bundle(path, Published.of(seen, folder / "gpu-box" / "it.zip"), seen, examine())
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def test_it_holds_what_it_says_and_its_profile_says_the_same_as_the_raw_one(pair, tmp_path):
    found = bundle_of(pair, tmp_path)
    assert set(found) == {"README.txt", "findings.json", "machine.json", "graph.json.gz", PROFILE}
    for name, schema in (("findings.json", "acceptance"), ("machine.json", "doctor")):
        jsonschema.Draft202012Validator(load_schema(schema)).validate(json.loads(found[name]))
    path = tmp_path / "scrubbed.xplane.pb"
    path.write_bytes(found[PROFILE])
    assert read_gpu_steps(path, NUMBERS) == read_gpu_steps(pair.files.client, NUMBERS)
    assert PROFILE not in bundle_of(replace(pair, files=None), tmp_path)


def test_no_private_text_is_in_any_file_of_it(pair, tmp_path):
    raw = pair.files.client.read_bytes()
    assert all(text.encode() in raw for text in PRIVATE)
    problem = f"{tmp_path}/p.xplane.pb of ann on gpu-box at 10.1.2.3 cannot be read"
    findings = (AcceptanceCheck("run", CheckOutcome.OFF, problem),)
    found = bundle_of(replace(pair, findings=findings), tmp_path)
    found["graph.json.gz"] = gzip.decompress(found["graph.json.gz"])
    for name, content in found.items():
        left = [text for text in (*PRIVATE, str(tmp_path)) if text.encode() in content]
        # Three letters stand in other words too: only the names are private.
        left = [text for text in left if text != "ann" or b" ann " in content]
        assert left == [], name
    findings = json.loads(found["findings.json"])["pairs"][0]["findings"]
    assert findings[0]["finding"] == "PATH of user on machine at ADDRESS cannot be read"
