"""What `advisor balance` prints: the answer first, and the same figures as in JSON."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest
from golden_files import GOLDEN, is_golden

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
from placement_advisor.files.contract import json_text, plain
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


# 32 samples in 8 ms, against 10 ms on the first device and 12.8 ms evenly.
RAN = balance({(16, 16): 12.8, (24, 8): 8.5, (25, 7): 8}, (25, 7))
LINES = [device.line for device in RAN.devices]
# Full, the second takes 4 + 20 ms. More for the first would let the second wait.
FULL = replace(RAN, most=(100, 40), best_batch=best_batch(LINES, (100, 40)))


@pytest.mark.parametrize(("name", "of"), [("memory_unknown", RAN), ("memory_known", FULL)])
def test_text_and_json_are_the_golden_ones(name: str, of: Balance):
    assert render_balance(of) == (GOLDEN / f"balance_{name}.txt").read_text(encoding="utf-8")
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
