"""What a training is to be run with, by an analysis; and what an analysis keeps of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from placement_advisor.analysis.analysis_result import TO_SPLIT
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.placement import read_placement_file
from placement_advisor.report.analysis.record_json import read_record
from placement_advisor.report.analysis.tables import ANALYSIS
from placement_advisor.report.find_analysis import find_analysis, finished_analyses
from placement_advisor.testbed.trial import BASELINE
from placement_advisor.tf.own_step.split_plan import SplitPlan

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.report.analysis.record import AnalysisRecord, CandidateRecord

_ANOTHER = "--candidate names another"


def analysis_of(script: str, root: Path) -> Path:
    """Return the folder of the newest analysis of a script, of those below a folder.

    Raises:
        AdvisorError: there is none.
    """
    found = [
        folder
        for folder in (finished_analyses(root.resolve()) if root.is_dir() else ())
        if read_record(folder / ANALYSIS).model.path == script
    ]
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
    """Return the split that an analysis tells to make, or a candidate that was named.

    If it tells to make none, or for devices that are not here, return that in a sentence. CPUs that
    stood in for others are here if the training is to be ``on_cpus``.

    Raises:
        AdvisorError: the folder holds no analysis, or that candidate is none that can be run.
    """
    folder = find_analysis(folder)
    record = read_record(folder / ANALYSIS)
    if candidate is None:
        why_not = _why_not(record, on_cpus=on_cpus)
        if why_not is not None:
            return why_not
        candidate = record.answer.candidate
    row = next((each for each in record.candidates if each.name == candidate), None)
    if row is None or candidate == BASELINE:
        names = ", ".join(each.name for each in record.candidates if _can_run(each))
        raise AdvisorError(
            f"{folder}: it has no split {candidate!r}", hint=f"those that can be run: {names}"
        )
    if not _can_run(row):
        why = f": {row.why}" if row.why else " has no placement to run with"
        raise AdvisorError(f"{folder}: {candidate}{why}", hint=_ANOTHER)
    return SplitPlan(
        label=row.name,
        family=row.family,
        devices=record.testbed.devices,
        placement=None if row.placement_file is None else (folder / row.placement_file).resolve(),
        samples=row.samples,
        single=(folder / "placements" / f"{BASELINE}.json").resolve(),
        step=record.model.step,
    )


def is_for_stand_ins(folder: Path) -> bool:
    """Return whether CPUs have stood in for the devices of an analysis."""
    return read_record(find_analysis(folder) / ANALYSIS).testbed.stand_in


def keep_training(folder: Path, training: dict[str, Any]) -> None:
    """Add what a training was run with to a finished analysis, in place of an earlier one."""
    path = folder / ANALYSIS
    document = json.loads(path.read_bytes())
    document["training"] = training
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    written.replace(path)


def _why_not(record: AnalysisRecord, *, on_cpus: bool) -> str | None:
    """Return why a training is not to be split, None if it is."""
    if record.answer.verdict not in TO_SPLIT:
        return record.answer.answer
    hardware = record.options.get("hardware", "not given")
    if hardware != "not given":
        return f"its verdict is for {hardware}, which is not here"
    if record.testbed.stand_in and not on_cpus:
        return (
            f"its verdict is for {record.testbed.description}, which stand in for others; "
            f"--devices {len(record.testbed.devices)} tries it on this machine's CPU"
        )
    return None


def _can_run(row: CandidateRecord) -> bool:
    if row.name == BASELINE or row.family == MIRRORED:
        return False
    return row.placement_file is not None or row.samples is not None
