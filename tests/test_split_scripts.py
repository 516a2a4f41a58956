"""What is drawn; that it is captured with its split is tested in `tf/test_split_scripts_run.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import split_scripts
from split_scripts import DEVICES, KINDS, STYLES, Tower, estimated_ms, split_script

_SEEDS = range(60)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_script_is_python_and_names_both_devices(seed: int) -> None:
    script = split_script(seed)
    asked = [
        call.args[0].value
        for call in ast.walk(ast.parse(script.text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "device"
        and isinstance(call.args[0], ast.Constant)
    ]
    assert set(asked) == set(DEVICES)


def test_equal_seeds_give_equal_text_in_any_process() -> None:
    command = [sys.executable, str(Path(split_scripts.__file__)), "11"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout == split_script(11).text
    assert split_script(11).text != split_script(17).text


def test_eight_seeds_in_a_row_have_all_styles_and_as_many_heavy_as_light_ones() -> None:
    for first in _SEEDS:
        drawn = [split_script(seed) for seed in range(first, first + 8)]
        assert {script.style for script in drawn} == set(STYLES)
        assert sum(script.is_heavy for script in drawn) == 4


def test_what_makes_a_split_better_or_worse_is_drawn() -> None:
    drawn = [split_script(seed) for seed in _SEEDS]
    towers = [tower for script in drawn for tower in (script.left, script.right)]
    assert {tower.kind for tower in towers} == set(KINDS)
    assert {script.is_apart for script in drawn} == {True, False}
    assert {script.head for script in drawn} == {*DEVICES, None}
    assert min(tower.top for tower in towers) < 50
    assert max(tower.top for tower in towers) > 500


def test_a_tower_by_hand() -> None:
    tower = Tower(kind="dense", size=64, width=500, depth=3, top=8, vocabulary=500)
    weights = 64 * 500 + 2 * 500 * 500 + 500 * 8
    # 6 operations for each weight and sample, 90 in a nanosecond, and 6 ns for each weight.
    by_hand_ns = weights * (6 * 100 / 90 + 6)
    assert estimated_ms(tower, 100, "SGD") == pytest.approx(by_hand_ns / 1e6)


def test_heavy_towers_take_what_was_drawn_for_them() -> None:
    heavy = [script for script in map(split_script, _SEEDS) if script.is_heavy]
    for script in heavy:
        least, most = sorted(
            estimated_ms(tower, script.batch, script.optimizer)
            for tower in (script.left, script.right)
        )
        assert 12 * 0.2 * 0.9 < least <= most <= 35


@pytest.mark.parametrize("style", STYLES)
def test_a_backward_pass_apart_stands_in_the_scopes_of_the_towers(style: str) -> None:
    drawn = [split_script(seed) for seed in _SEEDS if split_script(seed).style == style]
    words = "colocate_gradients_with_ops" if style == "session" else "right_tape.gradient"
    assert all((words in script.text) is script.is_apart for script in drawn)
