"""What `advisor balance` prints: the answer first, and the same figures as in JSON."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.cost.batch import (
    Balance,
    BatchMemory,
    best_batch,
    best_by_lines,
    other_batches,
    speed_of,
    split_step,
)
from placement_advisor.files.contract import plain
from placement_advisor.report.plans import render_balance
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.plans import Balance as Published

MS = 1_000_000
SIZES = (32, 16, 8)


def balance(tried_ms: dict[tuple[int, int], float], advised: tuple[int, int]) -> Balance:
    # 2 + n/4 ms and 4 + n/2 ms: alone they take 10 and 20 ms for 32 samples.
    devices = (
        speed_of("GPU:0", {n: [round((2 + n / 4) * MS)] for n in SIZES}),
        speed_of("GPU:1", {n: [round((4 + n / 2) * MS)] for n in SIZES}),
    )
    return Balance(
        model="model.py",
        testbed="2 GPUs",
        batch=32,
        batch_was_asked=True,
        devices=devices,
        memory=BatchMemory(fixed_bytes=200_000_000, per_sample_bytes=5_000_000),
        most=(None, None),
        best=best_by_lines(devices, 32, (None, None)),
        even=split_step([device.line for device in devices], shares_of(32, (1, 1))),
        others=other_batches(devices, 32, (None, None)),
        best_batch=None,
        advised=advised,
        tried={samples: round(ms * MS) for samples, ms in tried_ms.items()},
        warnings=(),
    )


RAN = balance({(16, 16): 12.8, (24, 8): 8.5, (25, 7): 8}, (25, 7))


def test_the_answer_says_what_the_best_split_gains_over_one_device_and_over_an_even_one():
    text = render_balance(RAN)
    # 32 samples in 8 ms, against 10 ms on the first device and 12.8 ms evenly.
    assert text.startswith(
        "share a batch of 32 as 25:7: 4,000 samples/s, 1.25× GPU:0 alone, 1.60× an even split, "
        "measured on 2 GPUs\n"
    )
    rows = [line.split() for line in text.splitlines()]
    assert ["advised", "25", "7", "8.00", "ms", "4,000", "8.25", "ms"] in rows
    assert ["even", "16", "16", "12.8", "ms", "2,500", "12.0", "ms"] in rows
    # The next command asks for a batch size only if the user did.
    command = "next: advisor analyze model.py{} --candidates batch --ratios 25:7\n"
    assert text.endswith(command.format(" --batch-size 32"))
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
def test_the_answer_says_what_it_rests_on(of: Balance, answer: str):
    assert render_balance(of).startswith(answer)


def test_where_step_times_lie_on_no_line_nothing_is_said_of_other_batches():
    bent = (
        speed_of("GPU:0", {32: [10 * MS], 16: [9 * MS], 8: [2 * MS]}),
        speed_of("GPU:1", {32: [20 * MS], 16: [12 * MS], 8: [8 * MS]}),
    )
    found = replace(balance({(16, 16): 12.8}, (16, 16)), devices=bent, others=())
    text = render_balance(found)
    assert "Other batches: nothing is said, step times lie on no line over the batch." in text
    assert "global batch" not in text


def test_what_memory_holds_is_said_and_where_that_is_not_known_how_to_say_it():
    unknown = balance({(16, 16): 12, (25, 7): 8}, (25, 7))
    text = render_balance(unknown)
    assert "Memory of a device, simulated: 200 MB, and 5.00 MB for each sample." in text
    assert "not known: --memory" in text
    assert "best that fits" not in text
    lines = [device.line for device in unknown.devices]
    known = replace(unknown, most=(100, 40), best_batch=best_batch(lines, (100, 40)))
    text = render_balance(known)
    assert "Samples that fit: GPU:0 holds 100, GPU:1 holds 40." in text
    # Full, the second takes 4 + 20 ms. More for the first would let the second wait.
    rows = [line.split() for line in text.splitlines()]
    assert ["best", "that", "fits:", "128", "88", "40", "24.0", "ms", "5,333"] in rows
    content = plain(Published.of(known))
    jsonschema.Draft202012Validator(load_schema("balance")).validate(content)
    assert content["best_batch"]["samples"] == [88, 40]
    assert content["tried"][1] == {"samples": [25, 7], "step_ns": 8 * MS}
    assert [device["most_samples"] for device in content["devices"]] == [100, 40]
