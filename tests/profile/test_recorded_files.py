from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.file_format import recorded_run

if TYPE_CHECKING:
    from pathlib import Path


def made(path: Path, *, at_s: int = 1_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x0a\x00")  # A plane of nothing.
    os.utime(path, (at_s, at_s))
    return path


def test_a_file_is_taken_whatever_its_name(tmp_path):
    path = made(tmp_path / "profile.bin")
    assert recorded_run(path).files == (path,)


def test_a_run_folder_has_all_its_profiles_and_nothing_else(tmp_path):
    run = [made(tmp_path / f"{host}.xplane.pb") for host in ("a", "b")]
    made(tmp_path / "a.op_stats_v2.pb")
    made(tmp_path / "plugins" / "c.xplane.pb")
    assert recorded_run(tmp_path).files == tuple(run)


def test_of_a_logdir_the_run_with_the_last_name_counts_though_it_was_copied_first(tmp_path):
    runs = tmp_path / "train" / "plugins" / "profile"
    made(runs / "2026_11_20_23_59_59" / "vm.xplane.pb", at_s=3_000)
    newest = made(runs / "2026_11_21_20_31_55" / "vm.xplane.pb", at_s=1_000)
    read = recorded_run(tmp_path)
    assert read.files == (newest,)
    assert read.note is not None
    assert "2026_11_21_20_31_55, the newest of 2 runs" in read.note


def test_what_was_given_as_one_run_needs_no_word_on_which_it_is(tmp_path):
    path = made(tmp_path / "plugins" / "profile" / "2026_11_21_20_31_55" / "vm.xplane.pb")
    for given in (tmp_path, path.parent, path):
        assert recorded_run(given).note is None


def test_runs_with_other_names_go_by_the_time_of_their_files(tmp_path):
    newest = made(tmp_path / "single" / "vm.xplane.pb", at_s=3_000)
    made(tmp_path / "towers" / "vm.xplane.pb", at_s=1_000)
    assert recorded_run(tmp_path).files == (newest,)


@pytest.mark.parametrize(
    ("measured", "made_up"),
    [
        (
            "runs/towers/plugins/profile/measured",
            ("runs/towers/plugins/profile/simulated", "runs/towers/plugins/profile/both"),
        ),
        # As before candidates had folders of their own.
        (
            "tensorboard/plugins/profile/towers",
            (
                "tensorboard/plugins/profile/towers-simulated",
                "tensorboard/plugins/profile/towers-both",
            ),
        ),
    ],
    ids=["now", "before"],
)
def test_steps_that_an_analysis_simulated_are_no_recorded_profiles(
    tmp_path: Path, measured: str, made_up: tuple[str, ...]
) -> None:
    recorded = made(tmp_path / measured / "vm.xplane.pb", at_s=1_000)
    for run in made_up:
        made(tmp_path / run / "vm.xplane.pb", at_s=3_000)
    assert recorded_run(tmp_path).files != (recorded,)
    made(tmp_path / "tensorboard" / "plugins" / "placement" / "analysis.json")
    assert recorded_run(tmp_path).files == (recorded,)


def test_no_path_and_no_profile_are_errors_that_name_it(tmp_path):
    with pytest.raises(AdvisorError, match=r"there is no profile .*gone"):
        recorded_run(tmp_path / "gone")
    with pytest.raises(AdvisorError, match="holds no profile") as caught:
        recorded_run(tmp_path)
    assert "plugins/profile" in (caught.value.hint or "")
