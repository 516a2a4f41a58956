"""What a training is to be run with, by an analysis; and what an analysis keeps of it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.defaults import BASELINE
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.placement import read_placement_file
from placement_advisor.report.analysis.record_json import read_record
from placement_advisor.report.analysis.tables import ANALYSIS
from placement_advisor.report.find_analysis import finished_analyses
from placement_advisor.tf.training.split_plan import SplitPlan

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.report.analysis.record import AnalysisRecord, CandidateRecord

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
            path = read_record(folder / ANALYSIS).model.path
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
    record = read_record(folder / ANALYSIS)
    if candidate is None:
        why_not = _why_not(record, on_cpus=on_cpus)
        if why_not is not None:
            return why_not
        candidate = record.trains_with
    row = next((each for each in record.candidates if each.name == candidate), None)
    if row is None:
        names = ", ".join(each.name for each in record.candidates if _can_run(each))
        raise AdvisorError(
            f"{folder}: it has no split {candidate!r}", hint=f"those that can be run: {names}"
        )
    captured = record.model.captured
    if row.family == MIRRORED and captured is not None and captured.is_replica:
        return "mirrored is what its own strategy does"
    if not _can_run(row):
        why = row.why or "it has no placement to run with"
        raise AdvisorError(f"{folder}: {candidate}: {why}", hint=_ANOTHER)
    if row.family == MIRRORED and (captured is None or captured.call != _METHOD):
        raise AdvisorError(
            f"{folder}: {candidate}: only `fit` hands each replica its share of the batch",
            hint=_ANOTHER,
        )
    return SplitPlan(
        label=row.name,
        family=row.family,
        devices=record.testbed.devices,
        placement=None if row.placement_file is None else (folder / row.placement_file).resolve(),
        samples=row.samples,
        single=(folder / "placements" / f"{BASELINE}.json").resolve(),
        step=None if captured is None else captured.step,
        on_stand_ins=record.testbed.stand_in,
    )


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
    if record.trains_with is None:
        return record.answer.answer
    hardware = record.options.get("hardware", "not given")
    if hardware != "not given":
        return f"its verdict is simulated, for {hardware}"
    if record.model.captured is not None and record.model.captured.is_replica:
        return "it trains under a strategy of its own, which a split would replace"
    if record.testbed.stand_in and not on_cpus:
        return (
            f"its verdict is for {record.testbed.description}, which stand in for others; "
            f"--devices {len(record.testbed.devices)} tries it on this machine's CPU"
        )
    return None


def _can_run(row: CandidateRecord) -> bool:
    return row.failure is None and (row.placement_file is not None or row.samples is not None)
