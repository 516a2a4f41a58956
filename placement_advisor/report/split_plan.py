"""What a training is to be run with, by an analysis; and what an analysis keeps of it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.defaults import BASELINE
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import json_text
from placement_advisor.graph.placement import read_placement_file
from placement_advisor.report.find_analysis import finished_analyses, read_analysis
from placement_advisor.results.analysis import ANALYSIS, Analysis, Training
from placement_advisor.tf.training.trial import SplitPlan

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.results.candidate import Candidate

_ANOTHER = "--candidate names another"
# What trains under a strategy in whose scope the model was made.
_METHOD = "model.fit"


def analysis_of(script: str, root: Path) -> Path:
    """Return the folder of the newest analysis of a script, of those below a folder.

    Raises:
        AdvisorError: there is none.
    """
    found = []
    for folder in finished_analyses(root.resolve()) if root.is_dir() else ():
        with suppress(AdvisorError):  # Of another version, or damaged.
            path = read_analysis(folder / ANALYSIS).model.path
            found += [folder] * (os.path.normpath(path) == os.path.normpath(script))
    if not found:
        raise AdvisorError(
            f"{script}: {root} holds no analysis of it",
            hint=f"advisor analyze {script}, or say where it is: --placement DIR",
        )
    return max(found, key=lambda folder: (folder / ANALYSIS).stat().st_mtime_ns)


def plan_of_file(path: Path) -> SplitPlan:
    """Return the plan of a placement file.

    Raises:
        AdvisorError: it is none.
    """
    file = read_placement_file(path)
    return SplitPlan(
        label=file.label, family=file.family, devices=file.devices, placement=path.resolve()
    )


def plan_of_analysis(folder: Path, candidate: str | None, *, on_cpus: bool) -> SplitPlan | str:
    """Return the split that the analysis in a folder tells to make, or a candidate that was named.

    Where one device is faster than the split that the script has, that is the plan. If there is
    nothing to change, or for devices that are not here, return that in a sentence. CPUs that stood
    in for others are here if the training is to be ``on_cpus``.

    Raises:
        AdvisorError: its analysis cannot be read, or that candidate is none that can be run.
    """
    analysis = read_analysis(folder / ANALYSIS)
    if candidate is None:
        why_not = _why_not(analysis, on_cpus=on_cpus)
        if why_not is not None:
            return why_not
        candidate = analysis.trains_with
    row = next((each for each in analysis.candidates if each.name == candidate), None)
    if row is None:
        names = ", ".join(each.name for each in analysis.candidates if _can_run(each))
        raise AdvisorError(
            f"{folder}: it has no split {candidate!r}", hint=(f"candidates that can run: {names}")
        )
    captured = analysis.model.captured
    if row.family == MIRRORED and captured is not None and captured.is_replica:
        return "mirrored is what its own strategy does"
    if not _can_run(row):
        why = row.failure.message if row.failure else "it has no placement to run with"
        raise AdvisorError(f"{folder}: {candidate}: {why}", hint=_ANOTHER)
    if row.family == MIRRORED and (captured is None or captured.call != _METHOD):
        raise AdvisorError(
            f"{folder}: {candidate}: only `fit` hands each replica its share of the batch",
            hint=_ANOTHER,
        )
    return SplitPlan(
        label=row.name,
        family=row.family,
        devices=tuple(device.name for device in analysis.testbed.devices),
        placement=None if row.placement_file is None else (folder / row.placement_file).resolve(),
        samples=row.samples,
        single=(folder / "placements" / f"{BASELINE}.json").resolve(),
        step=None if captured is None else captured.step,
        on_stand_ins=analysis.testbed.stand_in,
    )


def keep_training(folder: Path, training: Training) -> None:
    """Add what a training was run with to a finished analysis, in place of an earlier one.

    Raises:
        AdvisorError: there is none any more.
        OSError: it cannot be written.
    """
    path = folder / ANALYSIS
    analysis = replace(read_analysis(path), training=training)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_text(json_text(analysis), encoding="utf-8")
    written.replace(path)


def _why_not(analysis: Analysis, *, on_cpus: bool) -> str | None:
    """Return why a training is not to be split, None if it is."""
    if analysis.trains_with is None:
        return analysis.recommendation.answer
    if (hardware := analysis.options.hardware) is not None:
        return f"its verdict is simulated, for {hardware}"
    if analysis.model.captured is not None and analysis.model.captured.is_replica:
        return "it trains under a strategy of its own, which a split would replace"
    if analysis.testbed.stand_in and not on_cpus:
        return (
            f"its verdict is for {analysis.testbed.description}, which stand in for others; "
            f"--devices {len(analysis.testbed.devices)} tries it on this machine's CPU"
        )
    return None


def _can_run(row: Candidate) -> bool:
    return row.failure is None and (row.placement_file is not None or row.samples is not None)
