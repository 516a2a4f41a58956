from dataclasses import replace

import jsonschema
import pytest
from golden_files import golden_text, is_golden
from sample_calibration import DEVICES, IN_ONE_PROCESS, W0, W1, WORKERS, copy, summary_of
from sample_hosts import summary_of_hosts

from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.cost import batch
from placement_advisor.files.contract import json_text, plain
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.report.machine_texts import Redactor, render_calibration
from placement_advisor.report.plans import render_balance
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.plans import Balance as Published

ENDS = (W0, W1)


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("sample", summary_of(WORKERS)),
        ("one_process", replace(summary_of(IN_ONE_PROCESS), kept_in=None)),
        ("hosts", summary_of_hosts()),
    ],
)
def test_the_text_is_the_golden_one_and_fits_a_terminal(name, summary):
    text = render_calibration(summary)
    assert text == golden_text(f"calibration_{name}.txt")
    assert max(map(len, text.splitlines())) <= 100


def test_links_cluster_files_and_times_that_noise_hid_are_told():
    text = render_calibration(replace(summary_of_hosts(), link=HostLink.DIRECT))
    assert "unencrypted (--link direct)" in text
    text = render_calibration(replace(summary_of(WORKERS), cluster_file="two.toml"))
    assert "\ncluster file       two.toml\n" in text
    assert text.endswith("advisor analyze MODEL.py --hardware two.toml\n")
    gpus = summary_of(WORKERS, tuple(replace(device, kind="GPU") for device in DEVICES))
    assert f"give {W0} a preset in it" in render_calibration(replace(gpus, cluster_file="two.toml"))
    assert "a preset" not in render_calibration(gpus)
    hidden = replace(WORKERS.both_ways[ENDS], one_way_ns=-1)
    text = render_calibration(summary_of(replace(WORKERS, both_ways={ENDS: hidden})))
    assert "took no time above the noise" in text


@pytest.mark.parametrize(("p90", "is_unsteady"), [(1.09, False), (1.1, True), (2.0, True)])
def test_a_core_that_wavers_is_told(p90, is_unsteady):
    calibration = replace(WORKERS, reference_p90={W0: 1.0, W1: p90})
    text = render_calibration(summary_of(calibration))
    assert ("\nunsteady" in text) == is_unsteady


@pytest.mark.parametrize(("far_ns", "is_rough"), [(2_200_000, False), (22_000_000, True)])
def test_copies_that_follow_no_line_are_told(far_ns, is_rough):
    bent = (*WORKERS.links[ENDS][:2], copy(4_000_000, far_ns))
    text = render_calibration(summary_of(replace(WORKERS, links=WORKERS.links | {ENDS: bent})))
    assert ("\nrough" in text) == is_rough


NAMES = Redactor({"ann": "user", "box": "machine", "box.lab.org": "machine", "a": "host1"})
NAME_NOBODY = (
    "ann_shift",
    "/job:worker/replica:0/task:1/device:CPU:0",
    "/device:GPU:0",
    "/host:CPU",
    "far/product_1:MatMul",
    "void Eigen::internal::Kernel<float, 2>(int)",
    "tensorflow 2.21.0, driver 535.104.05",
    "took 12:30:59",
    "edge_7_near/product_3;0:0",
)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/home/ann/m.py:3 failed", "PATH:3 failed"),
        ("~/m/model.py, '/tmp/x-1/y'", "PATH, 'PATH'"),
        ("file:/srv/data/x", "file:PATH"),
        ("10.0.0.2:7600 and ::1", "ADDRESS:7600 and ADDRESS"),
        ("[2001:db8::17]:80", "[ADDRESS]:80"),
        ("box.lab.org, box and boxes", "machine, machine and boxes"),
        ("a:0 → b:0", "host1:0 → b:0"),
        *zip(NAME_NOBODY, NAME_NOBODY, strict=True),
    ],
)
def test_names_addresses_and_paths_are_taken_out_and_no_more(text, rest):
    assert NAMES.text(text) == rest
    content = {text: [text, 1, None, {"x": True}]}
    assert NAMES.json(content) == {rest: [rest, 1, None, {"x": True}]}


MS = 1_000_000
SIZES = (32, 16, 8)


def balance(tried_ms, advised):
    # 2 + n/4 ms and 4 + n/2 ms: alone they take 10 and 20 ms for 32 samples.
    devices = (
        batch.speed_of("GPU:0", {n: [round((2 + n / 4) * MS)] for n in SIZES}),
        batch.speed_of("GPU:1", {n: [round((4 + n / 2) * MS)] for n in SIZES}),
    )
    return batch.Balance(
        model="model.py",
        testbed="2 GPUs",
        batch=32,
        batch_was_asked=True,
        devices=devices,
        memory=batch.BatchMemory(fixed_bytes=200_000_000, per_sample_bytes=5_000_000),
        most=(None, None),
        best=batch.best_split([device.line for device in devices], 32, (None, None)),
        even=batch.split_step([device.line for device in devices], shares_of(32, (1, 1))),
        others=batch.other_batches(devices, 32, (None, None)),
        best_batch=None,
        advised=advised,
        tried={samples: round(ms * MS) for samples, ms in tried_ms.items()},
        warnings=(),
    )


# 32 samples in 8 ms, against 10 ms on the first device and 12.8 ms evenly.
RAN = balance({(16, 16): 12.8, (24, 8): 8.5, (25, 7): 8}, (25, 7))
LINES = [device.line for device in RAN.devices]
# Full, the second takes 4 + 20 ms. More for the first would let the second wait.
FULL = replace(RAN, most=(100, 40), best_batch=batch.best_batch(LINES, (100, 40)))


@pytest.mark.parametrize(("name", "of"), [("memory_unknown", RAN), ("memory_known", FULL)])
def test_text_and_json_are_the_golden_ones(name, of):
    assert render_balance(of) == golden_text(f"balance_{name}.txt")
    published = Published.of(of)
    jsonschema.Draft202012Validator(load_schema("balance")).validate(plain(published))
    assert is_golden(json_text(published), f"balance_{name}")


def test_the_next_command_asks_for_a_batch_size_only_if_the_user_did():
    command = "next: advisor analyze model.py{} --candidates batch --ratios 25:7\n"
    assert render_balance(RAN).endswith(command.format(" --batch-size 32"))
    assert render_balance(replace(RAN, batch_was_asked=False)).endswith(command.format(""))


SMALL = tuple(
    replace(device, points=device.points[1:], residuals=device.residuals[1:])
    for device in RAN.devices
)


@pytest.mark.parametrize(
    ("of", "answer"),
    [
        (
            balance({(16, 16): 14, (24, 8): 11}, (24, 8)),
            "do not split a batch of 32: GPU:0 alone makes 3,200 samples/s, the best split that "
            "was tried, 24:8, 2,909, measured on 2 GPUs\n",
        ),
        (
            balance({}, (24, 8)),
            "share a batch of 32 as 24:8: by the lines at most 4,000 samples/s, 1.50× an even "
            "split",
        ),
        (
            replace(balance({(25, 7): 8}, (25, 7)), devices=SMALL, most=(25, 10)),
            "share a batch of 32 as 25:7: 4,000 samples/s, more than one device holds, an even "
            "split does not fit, measured on 2 GPUs\n",
        ),
    ],
)
def test_the_answer_says_what_it_rests_on(of, answer):
    assert render_balance(of).startswith(answer)


def test_where_step_times_lie_on_no_line_nothing_is_said_of_other_batches():
    bent = (
        batch.speed_of("GPU:0", {32: [10 * MS], 16: [9 * MS], 8: [2 * MS]}),
        batch.speed_of("GPU:1", {32: [20 * MS], 16: [12 * MS], 8: [8 * MS]}),
    )
    found = replace(balance({(16, 16): 12.8}, (16, 16)), devices=bent, others=())
    text = render_balance(found)
    told = "Other batches: nothing is predicted, as step times follow no line over the batch."
    assert told in text
    assert "global batch" not in text
