"""An analysis read back from its file: all that the screen needs, or one error with its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import sample_analysis

from placement_advisor.errors import AdvisorError
from placement_advisor.measurement.measurement import FailureKind
from placement_advisor.report.analysis_folder import write_analysis
from placement_advisor.report.find_analysis import read_analysis
from placement_advisor.results.analysis import Analysis as Published

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis


def test_what_is_written_is_read_back(analysis: Analysis, tmp_path: Path) -> None:
    write_analysis(analysis, tmp_path)
    found = read_analysis(tmp_path / "analysis.json")
    assert found == Published.of(analysis)
    single, towers, alternating = found.candidates
    assert single.measured_step is not None
    assert single.measured_step.step_ns == 51_000_000
    assert towers.step("measured") == towers.measured_step
    assert alternating.failure is not None
    assert alternating.failure.kind is FailureKind.CRASHED
    assert alternating.step("simulated") is None


def test_parts_of_a_step_are_those_of_the_device_that_computes_most(analysis: Analysis) -> None:
    towers = Published.of(analysis).candidates[1]
    assert towers.predicted_step is not None
    parts = towers.predicted_step.parts
    assert parts is not None
    # worker:0 computes 2 + 13 + 0.5 + 11 + 1.5 ms of the 30.1 ms; it waits from 15.3 to 15.7 ms and
    # from 27.5 to 28.6 ms.
    assert (parts.device, parts.compute_ns, parts.copies_ns) == ("worker:0", 28_000_000, 1_500_000)
    assert parts.idle_ns == 600_000
    # Under the profiler the step is 4 % slower.
    assert towers.measured_step is not None
    parts = towers.measured_step.parts
    assert parts is not None
    assert parts.compute_ns == 29_120_000
    told_ns = parts.compute_ns + parts.copies_ns + parts.idle_ns
    assert told_ns == pytest.approx(30_100_000 * 1.04, rel=1e-6)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("schema_version",), 3, "schema_version: 3 is newer than the 2 that this advisor reads"),
        (("recommendation",), {}, "recommendation: no field 'verdict'"),
        (("recommendation", "verdict"), "maybe", "'maybe' is not stay-single, split"),
        (("recommendation", "basis"), "felt", "'felt' is not measured or simulated"),
        (("candidates", 2, "failure", "kind"), "bored", "'bored' is not crashed, timed-out"),
        (("testbed", "links", 0, "latency_ns"), -1, "-1 is not a time"),
        *(
            (("candidates", 1, "measured", "ratio_to_single", "ci95"), interval, "ratio_to_single")
            for interval in ([2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [1.0], [1e300, 1e300], None)
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_place(
    analysis: Analysis, tmp_path: Path, path: tuple[str | int, ...], value: Any, says: str
) -> None:
    document: Any = sample_analysis.as_json(analysis)
    damaged = document
    for step in path[:-1]:
        damaged = damaged[step]
    damaged[path[-1]] = value
    file = tmp_path / "analysis.json"
    file.write_text(json.dumps(document))
    with pytest.raises(AdvisorError) as caught:
        read_analysis(file)
    assert caught.value.message.startswith(f"{file}: ")
    assert says in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="cannot be read: No such file"):
        read_analysis(tmp_path / "analysis.json")
