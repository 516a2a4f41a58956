"""`advisor analyze` on real workers, from a model of two towers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import jsonschema
import pytest
from command_runs import Command, Ran, few_rounds, run_here
from real_runs import needs_workers
from watched_testbed import Call, Watch, WatchedTestbed, kill

from placement_advisor.analysis import analyze as analyze_stages
from placement_advisor.analysis import runs as refining
from placement_advisor.analysis import runs as run_stage
from placement_advisor.analysis import step_costs
from placement_advisor.analysis.runs import Refined
from placement_advisor.candidates.families import NAMES as FAMILY_NAMES
from placement_advisor.candidates.families import SPLITS
from placement_advisor.machine import this_machine
from placement_advisor.report.find_analysis import find_runs
from placement_advisor.report.screen import MOST_LINES
from placement_advisor.results.contracts import load_schema
from placement_advisor.testbed import benchmark
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.analysis.runs import RunResults
    from placement_advisor.solvers.effort import Effort

NAMES = ["single", "towers", "alternating"]
QUICK = ("--effort", "0.05")
FEW = ("--rounds", "5", "--steps", "1", "--candidates", "towers,alternating", *QUICK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A run of the command, its output folder, and what the testbed saw."""

    ran: Ran
    folder: Path
    calls: list[Call]

    @property
    def analysis(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "analysis.json").read_text())
        return content

    @property
    def full_text(self) -> str:
        return (self.folder / "report.txt").read_text()

    def candidate(self, name: str) -> dict[str, Any]:
        return next(c for c in self.analysis["candidates"] if c["name"] == name)


@pytest.fixture(scope="module")
def analysed(
    fork_server: None,
    two_towers: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Analysed:
    """One complete run."""
    folder = tmp_path_factory.mktemp("analysed")
    watch = Watch(output=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatchedTestbed, "watch", watch, raising=False)
        patch.setattr(step_costs, "Testbed", WatchedTestbed)
        ran = run_here("analyze", str(two_towers), "-o", str(folder), *FEW)
    return Analysed(ran=ran, folder=folder, calls=watch.calls)


@pytest.fixture
def broken_run(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Analysed]:
    """Runs the command and does something before one call of the runner."""

    def run(
        function: str, label: str, count: int, act: Callable[[Testbed], None], *words: str
    ) -> Analysed:
        def before(call: Call, testbed: Testbed) -> None:
            if (call.function, call.label, call.count) == (function, label, count):
                act(testbed)

        folder = tmp_path / "out"
        watch = Watch(output=folder, before=before)
        monkeypatch.setattr(WatchedTestbed, "watch", watch, raising=False)
        monkeypatch.setattr(step_costs, "Testbed", WatchedTestbed)
        ran = advisor("analyze", str(two_towers), "-o", str(folder), *FEW, "--json", *words)
        return Analysed(ran=ran, folder=folder, calls=watch.calls)

    return run


@needs_workers
class TestACompleteRun:
    def test_exits_with_zero_and_a_verdict(self, analysed: Analysed) -> None:
        assert analysed.ran.code == 0, analysed.ran.err
        where, answer, *_ = analysed.ran.out.splitlines()
        assert where == "Measured on 2 CPU stand-ins (1 core each, gRPC), batch 32, train:"
        assert answer.startswith(("split: ", "stay single", "cannot tell: "))
        assert analysed.analysis["recommendation"]["basis"] == "measured"

    def test_says_what_it_does_on_stderr_line_by_line(self, analysed: Analysed) -> None:
        lines = analysed.ran.err.splitlines()
        assert all(line.startswith("advisor: ") for line in lines)
        stages = ("importing", "running", "tracing", "measuring", "timing", "profiling")
        found = [next(i for i, line in enumerate(lines) if stage in line) for stage in stages]
        assert found == sorted(found)

    def test_each_worker_has_a_core_and_the_client_waits_on_that_of_the_first(
        self, analysed: Analysed
    ) -> None:
        ((first, second, client),) = {call.cores for call in analysed.calls}
        assert len(first) == len(second) == 1
        assert first != second
        assert client == first

    def test_prints_a_screen_that_show_prints_again(self, analysed: Analysed) -> None:
        assert len(analysed.ran.out.splitlines()) <= MOST_LINES
        again = run_here("show", str(analysed.folder))
        assert (again.code, again.err, again.out) == (0, "", analysed.ran.out)
        assert run_here("show", "-v", str(analysed.folder)).out.startswith(analysed.full_text)

    def test_writes_an_analysis_that_keeps_the_public_contract(self, analysed: Analysed) -> None:
        jsonschema.validate(analysed.analysis, load_schema("analysis"))
        assert [c["name"] for c in analysed.analysis["candidates"]] == NAMES

    def test_says_where_its_time_went_and_leaves_none_out(self, analysed: Analysed) -> None:
        total_ns = (timings_ns := dict(analysed.analysis["timings_ns"])).pop("total")
        assert all(value > 0 for value in timings_ns.values())
        assert sum(timings_ns.values()) == total_ns

    def test_says_on_each_line_how_long_is_left(self, analysed: Analysed) -> None:
        said = [line for line in analysed.ran.err.splitlines() if "two_towers.py: " not in line]
        assert all(re.search(r", about \d+ (s|min) left", line) for line in said)
        # Once more after each look for a candidate that may join.
        timing, *_ = [line for line in said if "timing rounds" in line]
        assert timing.endswith(" if in doubt")

    @pytest.mark.parametrize("name", NAMES)
    def test_writes_placements_that_keep_the_public_contract(
        self, analysed: Analysed, name: str
    ) -> None:
        content = json.loads((analysed.folder / "placements" / f"{name}.json").read_text())
        jsonschema.validate(content, load_schema("placement"))
        assert content["devices"] == ["worker:0", "worker:1"]

    def test_puts_each_tower_on_a_device_of_its_own(self, analysed: Analysed) -> None:
        content = json.loads((analysed.folder / "placements" / "towers.json").read_text())
        device = content["by_layer"]
        left = {device[layer] for layer in device if "left_" in layer}
        right = {device[layer] for layer in device if "right_" in layer}
        assert len(left) == len(right) == 1
        assert left != right

    def test_leaves_nothing_half_written(self, analysed: Analysed) -> None:
        assert sorted(path.name for path in analysed.folder.iterdir()) == [
            "analysis.json", "break-even.png", "comparison.png", "graph.json.gz",
            "placements", "predictions", "report.html", "report.md", "report.txt", "rounds.json",
            "runs", "tensorboard", "timeline.png",
        ]  # fmt: skip

    def test_times_every_candidate_in_every_round(self, analysed: Analysed) -> None:
        steps = [len(analysed.candidate(name)["measured"]["step_ns"]["samples"]) for name in NAMES]
        assert steps[0] >= 5
        assert steps == [steps[0]] * 3

    def test_predicts_a_split_before_it_runs(self, analysed: Analysed) -> None:
        first = {
            call.label: call for call in reversed(analysed.calls) if call.function == "prepare"
        }
        assert "towers" in first["towers"].predictions
        assert "alternating" in first["alternating"].predictions
        # Single runs before that, for the costs that predictions are made of, but is not timed.
        rounds = [c for c in analysed.calls if c.function == "run_steps" and c.label == "towers"]
        assert "single" in rounds[0].predictions

    @pytest.mark.parametrize("name", NAMES)
    def test_leaves_a_prediction_that_is_older_than_the_profile(
        self, analysed: Analysed, name: str
    ) -> None:
        candidate = analysed.candidate(name)
        prediction = analysed.folder / "predictions" / f"{name}.json"
        assert json.loads(prediction.read_text()) == candidate["predicted"]
        profiles = list((analysed.folder / candidate["measured"]["profile"]).glob("*.xplane.pb"))
        # Of the client and of each device that does something.
        assert len(profiles) == (2 if name == "single" else 3)
        assert all(prediction.stat().st_mtime_ns < path.stat().st_mtime_ns for path in profiles)

    @pytest.mark.parametrize("name", NAMES)
    def test_runs_every_op_where_it_was_placed(self, analysed: Analysed, name: str) -> None:
        assert analysed.candidate(name)["measured"]["moved_ops"] == []

    @pytest.mark.parametrize("name", ["towers", "alternating"])
    def test_gives_the_results_of_the_single_device(self, analysed: Analysed, name: str) -> None:
        assert analysed.candidate(name)["measured"]["verification"]["unverified"] == []

    def test_sweeps_what_would_have_to_change_for_a_split_to_win(self, analysed: Analysed) -> None:
        found = analysed.analysis["break_even"]
        assert found["bandwidth"]["outcome"] in ("crosses", "throughout", "nowhere")
        assert found["batch"]["here_samples"] == 32
        splits = {*NAMES[1:], "searched for faster links"}
        assert {point["candidate"] for point in found["latency"]["points"]} <= splits
        title = "Break-even (simulated, corrected): a split that leaves the batch whole wins"
        assert title in analysed.full_text

    def test_times_the_dataset_alone(self, analysed: Analysed) -> None:
        found = analysed.analysis["input"]
        assert found["transformations"] == ["TensorSliceDataset", "BatchDataset"]
        assert found["samples_per_s"] == pytest.approx(
            32 * len(found["batch_ns"]) / (sum(found["batch_ns"]) / 1e9)
        )
        assert "samples/s alone; the step (as-is) takes" in analysed.full_text

    def test_copies_nothing_on_one_device(self, analysed: Analysed) -> None:
        assert analysed.candidate("single")["measured"]["transfer_count"] == 0

    @pytest.mark.parametrize("name", ["towers", "alternating"])
    def test_copies_what_was_predicted(self, analysed: Analysed, name: str) -> None:
        candidate = analysed.candidate(name)
        predicted, measured = candidate["predicted"], candidate["measured"]
        assert measured["transfer_count"] == predicted["transfer_count"] > 0
        assert measured["transfer_bytes"] == predicted["transfer_bytes"] > 0

    def test_its_workers_listen_in_a_network_of_their_own_alone(self, analysed: Analysed) -> None:
        running = [call for call in analysed.calls if call.function == "run_steps"]
        assert {call.listening_here for call in running} == {0}
        assert {call.listening_there for call in running} == {2}


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def samples(analysis: dict[str, Any], name: str) -> list[int]:
    candidate = next(each for each in analysis["candidates"] if each["name"] == name)
    steps: list[int] = candidate["measured"]["step_ns"]["samples"]
    return steps


@pytest.fixture(scope="module")
def resumed(
    analysed: Analysed, two_towers: Path, tmp_path_factory: pytest.TempPathFactory
) -> Analysed:
    """Two rounds more than those of the complete run."""
    folder = tmp_path_factory.mktemp("resumed") / "out"
    shutil.copytree(analysed.folder, folder)
    with mock.patch.object(benchmark, "MAX_ROUNDS", 1):
        words = ("--resume", "--rounds", "2", *FEW[2:])
        ran = run_here("analyze", str(two_towers), "-o", str(folder), *words)
    assert ran.code == 0, ran.err
    return Analysed(ran=ran, folder=folder, calls=[])


@needs_workers
class TestAResumedRun:
    @pytest.mark.parametrize("name", NAMES)
    def test_adds_its_rounds_to_those_before(
        self, analysed: Analysed, resumed: Analysed, name: str
    ) -> None:
        before, after = samples(analysed.analysis, name), samples(resumed.analysis, name)
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2
        as_is = resumed.analysis["as_is"]["step_ns"]["samples"]
        assert as_is[: len(before)] == analysed.analysis["as_is"]["step_ns"]["samples"]
        assert len(as_is) == len(after)

    def test_predicts_what_was_predicted_before_anything_ran(
        self, analysed: Analysed, resumed: Analysed
    ) -> None:
        for folder in ("predictions", "placements"):
            names = {path.name for path in (analysed.folder / folder).iterdir()}
            assert names == {path.name for path in (resumed.folder / folder).iterdir()}
            for name in names:
                before = (analysed.folder / folder / name).read_bytes()
                assert (resumed.folder / folder / name).read_bytes() == before, name
        assert resumed.analysis["testbed"] == analysed.analysis["testbed"]
        assert resumed.analysis["bound"] == analysed.analysis["bound"]

    def test_says_of_how_many_sessions_its_rounds_are(
        self, analysed: Analysed, resumed: Analysed
    ) -> None:
        jsonschema.validate(resumed.analysis, load_schema("analysis"))
        assert (analysed.analysis["sessions"], resumed.analysis["sessions"]) == (1, 2)
        assert "They ran in 2 sessions." in (resumed.folder / "report.md").read_text()

    def test_measures_no_costs_and_searches_nothing(self, resumed: Analysed) -> None:
        assert resumed.analysis["timings_ns"]["measure"] is None
        assert "measuring op times" not in resumed.ran.err

    def test_takes_a_profile_of_each_candidate(self, resumed: Analysed) -> None:
        assert all(resumed.candidate(name)["measured"]["compute_ns"] for name in NAMES)

    @pytest.mark.parametrize(
        ("words", "differs"),
        [
            (("--steps", "2"), "--steps: 1 then, 2 now"),
            (("--batch-size", "16"), "--batch-size: not given then, 16 now"),
            (("--testbed", "logical-cpus"), "testbed: 2 CPU stand-ins (1 core each, gRPC) then, "),
        ],
    )
    def test_is_refused_where_more_rounds_were_others(
        self, analysed: Analysed, two_towers: Path, words: tuple[str, ...], differs: str
    ) -> None:
        before = content_of(analysed.folder)
        ran = run_here(
            "analyze", str(two_towers), "-o", str(analysed.folder), *FEW, "--resume", *words
        )
        assert ran.code == 2
        assert f"cannot be resumed, its rounds ran under other conditions: {differs}" in ran.err
        assert content_of(analysed.folder) == before

    def test_is_refused_where_the_step_is_another(
        self, analysed: Analysed, two_towers: Path, tmp_path: Path
    ) -> None:
        wider = tmp_path / "two_towers.py"
        wider.write_text(two_towers.read_text().replace("Dense(64", "Dense(65"))
        assert wider.read_text() != two_towers.read_text()
        before = content_of(analysed.folder)
        ran = run_here("analyze", str(wider), "-o", str(analysed.folder), *FEW, "--resume")
        assert ran.code == 2
        assert "under other conditions: graph: " in ran.err
        assert content_of(analysed.folder) == before

    @pytest.mark.parametrize("word", ["--quick", "--no-run"])
    def test_is_refused_where_nothing_runs(self, two_towers: Path, word: str) -> None:
        ran = run_here("analyze", str(two_towers), "--resume", word)
        assert ran.code == 2
        assert "--resume adds rounds, and by the other options none run" in ran.err

    def test_that_is_interrupted_loses_nothing_of_those_before(
        self, analysed: Analysed, two_towers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "out"
        shutil.copytree(analysed.folder, folder)
        before = content_of(folder)

        def interrupt(call: Call, testbed: Testbed) -> None:
            if (call.function, call.label, call.count) == ("run_steps", "towers", 2):
                raise KeyboardInterrupt

        watch = Watch(output=folder, before=interrupt)
        monkeypatch.setattr(WatchedTestbed, "watch", watch, raising=False)
        monkeypatch.setattr(step_costs, "Testbed", WatchedTestbed)
        ran = run_here("analyze", str(two_towers), "-o", str(folder), *FEW, "--resume")
        assert ran.code == 130
        assert content_of(folder) == before


@pytest.mark.slow
@needs_workers
def test_ports_that_are_accepted_to_be_open_are_told_before_anything_else(
    broken_run: Callable[..., Analysed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: False)
    analysed = broken_run("", "", 0, lambda testbed: None, "--open-ports")
    assert analysed.ran.code == 0, analysed.ran.err
    first, *_ = analysed.ran.err.splitlines()
    assert first.startswith("advisor: warning: this system allows no private network: until")
    assert "until this run ends" in " ".join((analysed.folder / "report.md").read_text().split())
    # The other test's control: here the workers do listen on the machine's own network.
    running = [call for call in analysed.calls if call.function == "run_steps"]
    assert {call.listening_here for call in running} == {2}


@pytest.mark.slow
@needs_workers
def test_the_tab_of_tensorboard_is_told_how_far_it_is(
    broken_run: Callable[..., Analysed], tmp_path: Path
) -> None:
    seen: list[dict[str, Any]] = []

    def look(testbed: Testbed) -> None:
        (run,) = find_runs(tmp_path)
        assert run.name == "out (running)"
        seen.append(json.loads(run.overview() or b""))
        assert run.details("towers") is not None

    analysed = broken_run("run_steps", "towers", 4, look)
    assert analysed.ran.code == 0, analysed.ran.err
    (then,) = seen
    assert re.fullmatch(r"timing, round \d+ done", then["doing"])
    assert then["verdict"] is None
    steps_ns = {each["name"]: each["measured"]["step_ns"] for each in then["candidates"]}
    assert steps_ns.keys() == set(NAMES)
    (run,) = find_runs(tmp_path)
    assert run.name == "out"
    now = json.loads(run.overview() or b"")
    assert now["doing"] is None
    assert now["verdict"]["verdict"] == analysed.analysis["recommendation"]["verdict"]


@needs_workers
def test_a_worker_killed_in_the_middle_of_a_step_costs_that_candidate_alone(
    broken_run: Callable[..., Analysed],
) -> None:
    def kill_soon(testbed: Testbed) -> None:
        assert testbed._client is not None
        # Two thousand steps more, so that the worker dies in the middle of one.
        testbed._client.start(runner.run_steps, "towers", 0, 2_000)
        kill(testbed, "worker:1")

    analysed = broken_run("run_steps", "towers", 2, kill_soon)
    assert analysed.ran.code == 0, analysed.ran.err
    failure = analysed.candidate("towers")["failure"]
    assert (failure["kind"], failure["message"]) == ("crashed", "worker:1 was killed by SIGKILL")
    for name in ("single", "alternating"):
        candidate = analysed.candidate(name)
        assert candidate["failure"] is None
        assert len(candidate["measured"]["step_ns"]["samples"]) >= 5
        assert candidate["measured"]["profile"] is not None
    warning = "advisor: warning: towers has no result: crashed: worker:1 was killed by SIGKILL"
    assert warning in analysed.ran.err
    assert analysed.analysis["recommendation"]["candidate"] == "alternating"
    assert json.loads(analysed.ran.out) == analysed.analysis
    jsonschema.validate(analysed.analysis, load_schema("analysis"))


@pytest.mark.slow
@needs_workers
def test_without_single_nothing_can_be_told(broken_run: Callable[..., Analysed]) -> None:
    analysed = broken_run("run_steps", "single", 4, lambda testbed: kill(testbed, "worker:0"))
    assert analysed.ran.code == 0, analysed.ran.err
    assert analysed.candidate("single")["failure"]["kind"] == "crashed"
    assert analysed.candidate("towers")["failure"] is None
    assert analysed.analysis["recommendation"]["verdict"] == "cannot-tell"


@pytest.mark.slow
@needs_workers
def test_a_killed_client_costs_the_candidate_that_it_ran(
    broken_run: Callable[..., Analysed],
) -> None:
    analysed = broken_run("verify", "towers", 0, lambda testbed: kill(testbed, "client"))
    assert analysed.ran.code == 0, analysed.ran.err
    failure = analysed.candidate("towers")["failure"]
    assert (failure["kind"], failure["message"]) == ("crashed", "client was killed by SIGKILL")
    measured = analysed.candidate("alternating")["measured"]
    assert measured["verification"]["unverified"] == []


@needs_workers
def test_a_worker_killed_before_there_are_costs_ends_the_analysis_and_is_named(
    broken_run: Callable[..., Analysed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # No calibration is kept there.
    analysed = broken_run("calibrate", "", 0, lambda testbed: kill(testbed, "worker:1"))
    assert analysed.ran.code == 2
    assert "calibration failed: worker:1 was killed by SIGKILL" in analysed.ran.err
    assert "Traceback" not in analysed.ran.err
    assert not analysed.folder.exists()


@needs_workers
def test_who_joins_between_rounds_is_verified_timed_and_kept_with_what_was_predicted(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join(forecast: Predictions, results: RunResults, effort: Effort) -> Refined | None:
        believed = refining.prediction_correction(forecast, results)
        if "searched-2" in forecast.predicted or believed is None:
            return None
        towers = forecast.proposals.placements["towers"]
        found = replace(towers, label="searched-2", family="searched")
        ratio = believed.ratio(found)
        with_it = refining.with_candidate(forecast, found)
        return Refined(
            placement=found, predictions=refining.with_ratio(with_it, "searched-2", ratio)
        )

    monkeypatch.setattr(analyze_stages, "refine", join)
    folder = tmp_path / "out"
    with few_rounds():
        ran = advisor("analyze", str(two_towers), "-o", str(folder), *FEW, "-q")
    assert ran.code == 0, ran.err
    analysis = json.loads((folder / "analysis.json").read_text())
    jsonschema.validate(analysis, load_schema("analysis"))
    found = {candidate["name"]: candidate for candidate in analysis["candidates"]}
    joined, towers = found["searched-2"], found["towers"]
    assert joined["failure"] is None
    assert joined["measured"]["verification"]["unverified"] == []
    assert joined["measured"]["transfer_count"] == towers["measured"]["transfer_count"] > 0
    counts = [len(each["measured"]["step_ns"]["samples"]) for each in (towers, joined)]
    assert counts[1] == counts[0] - 1  # It joined after the first round.
    assert joined["predicted"] == towers["predicted"]
    assert joined["predicted_after_runs"]["runs"] == 2
    assert towers["predicted_after_runs"] is None
    kept = {path.name: json.loads(path.read_text()) for path in (folder / "predictions").iterdir()}
    assert kept["searched-2.json"] == joined["predicted"]
    assert kept["searched-2.after-2-runs.json"] == joined["predicted_after_runs"]
    assert (folder / "placements" / "searched-2.json").exists()
    assert "after 2 runs" in (folder / "report.md").read_text()


@pytest.mark.slow
@needs_workers
def test_a_step_that_fails_as_it_is_costs_as_is_alone(
    advisor: Callable[..., Ran],
    two_towers: Path,
    tmp_path: Path,
    write_model: Callable[[str], Path],
) -> None:
    # Dies in the user's own process once the step has run some times there.
    code = two_towers.read_text() + (
        "import os\n"
        "calls = []\n"
        "class Fragile(keras.Model):\n"
        "    def train_step(self, data):\n"
        "        calls.append(data)\n"
        "        if len(calls) > 1: os._exit(9)\n"
        "        return super().train_step(data)\n"
        "model = Fragile([left, right], score)\n"
        "model.compile(optimizer='adam', loss='mean_squared_error')\n"
    )
    folder = tmp_path / "out"
    ran = advisor("analyze", str(write_model(code)), "-o", str(folder), "--verbose", *FEW)
    assert ran.code == 0, ran.err
    assert " ".join(ran.out.split()).count("as-is was not timed: loader exited with status 9") == 1
    analysis = json.loads((folder / "analysis.json").read_text())
    assert (analysis["as_is"], analysis["input"]) == (None, None)
    assert all(c["failure"] is None for c in analysis["candidates"])


@pytest.mark.slow
@needs_workers
def test_a_dataset_that_hangs_later_on_costs_a_warning_alone(
    advisor: Callable[..., Ran],
    two_towers: Path,
    tmp_path: Path,
    write_model: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_stage, "_INPUT_LIMIT_S", 2.0)
    # More than enough for the example batches.
    code = two_towers.read_text() + (
        "import time\n"
        "def rows():\n"
        "    for number in range(10_000):\n"
        "        if number == 320: time.sleep(3_600)\n"
        "        yield (values[0], values[1]), values[2, :1]\n"
        "row = tf.TensorSpec(64)\n"
        "shapes = ((row, row), tf.TensorSpec(1))\n"
        "dataset = tf.data.Dataset.from_generator(rows, output_signature=shapes).batch(32)\n"
    )
    folder = tmp_path / "out"
    ran = advisor("analyze", str(write_model(code)), "-o", str(folder), "--verbose", *FEW)
    assert ran.code == 0, ran.err
    warning = "the dataset was not timed alone: loader gave no answer within 2 s"
    assert " ".join(ran.out.split()).count(warning) == 1
    analysis = json.loads((folder / "analysis.json").read_text())
    assert analysis["input"] is None
    assert analysis["as_is"] is not None
    assert all(c["failure"] is None for c in analysis["candidates"])


class NoTestbed(Testbed):
    __test__ = False  # The name of its base starts with "Test"; pytest must not collect it.

    def __init__(self, *args: object, **options: object) -> None:
        raise AssertionError("a testbed was set up")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            (
                "--no-run",
                *QUICK,
            ),
            "--no-run: no step was executed",
        ),
        (("--devices", "3"), "3 devices need 3 cores of their own"),
        (("--testbed", "none"), "--testbed none: nothing was run"),
    ],
)
def test_where_nothing_runs_everything_is_simulated_and_says_so(
    advisor: Callable[..., Ran],
    two_towers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.setattr(this_machine, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(step_costs, "Testbed", NoTestbed)
    folder = tmp_path / "out"
    ran = advisor("analyze", str(two_towers), "-o", str(folder), "--quiet", *QUICK, *words)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    assert ran.out.startswith("Simulated for ")
    assert reason in " ".join(ran.out.split())
    analysis = json.loads((folder / "analysis.json").read_text())
    jsonschema.validate(analysis, load_schema("analysis"))
    assert analysis["recommendation"]["basis"] == "simulated"
    assert (analysis["as_is"], analysis["input"]) == (None, None)
    assert analysis["break_even"]["free_copies"]["ratio"] > 0
    assert [c["measured"] for c in analysis["candidates"]] == [None] * len(analysis["candidates"])
    assert all(c["predicted"] is not None for c in analysis["candidates"] if not c["failure"])
    known = {c["name"] for c in analysis["candidates"]}
    assert known == {*FAMILY_NAMES} - {"as-written"}
    runs = folder / "runs"
    assert {str(path.relative_to(runs)) for path in runs.glob("*/plugins/profile/*")} == {
        f"{c['name']}/plugins/profile/simulated" for c in analysis["candidates"] if c["predicted"]
    }


def test_a_quick_analysis_runs_nothing_splits_no_batch_draws_nothing_and_says_so(
    advisor: Callable[..., Ran],
    two_towers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(this_machine, "usable_cores", lambda: (0, 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(step_costs, "Testbed", NoTestbed)
    folder = tmp_path / "out"
    ran = advisor("analyze", str(two_towers), "-o", str(folder), "--quick", "-q")
    assert (ran.code, ran.err) == (0, "")
    where = "Simulated for 2 CPU stand-ins (1 core each, gRPC), batch 32, train (--quick: no step "
    shown = " ".join(ran.out.split())
    assert shown.startswith(f"{where}was executed, no split of the batch tried):")
    assert "Next: the same command without --quick, about " in shown
    analysis = json.loads((folder / "analysis.json").read_text())
    jsonschema.validate(analysis, load_schema("analysis"))
    assert analysis["recommendation"]["basis"] == "simulated"
    assert analysis["recommendation"]["next_run"]["change"] == "without --quick"
    assert (analysis["options"]["run"], analysis["options"]["quick"]) == (False, True)
    known = {c["name"] for c in analysis["candidates"]}
    assert known == {*FAMILY_NAMES} - {"as-written", *SPLITS}
    assert (analysis["break_even"], analysis["timings_ns"]["run"]) == (None, None)
    assert sorted(path.name for path in folder.iterdir() if path.name != "how_to_split.py") == [
        "analysis.json", "graph.json.gz", "placements", "predictions", "report.md",
        "report.txt",
    ]  # fmt: skip
    assert ".png" not in (folder / "report.md").read_text()
    again = advisor("show", "-v", str(folder))
    assert again.out == (folder / "report.txt").read_text()
    assert "report.html" not in again.out


def test_what_is_quick_splits_the_batch_if_asked_to_and_looks_at_devices_that_are_not_here(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path
) -> None:
    words = ("--quick", "--candidates", "batch", "--hardware", "2xV100-NVLink", "-q", "--json")
    ran = advisor("analyze", str(two_towers), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    assert [c["name"] for c in analysis["candidates"]] == ["single", "batch"]
    assert "--quick" not in analysis["testbed"]["not_run"]
    # Nothing can run there, but a whole analysis has more to tell.
    assert analysis["recommendation"]["next_run"]["change"] == "without --quick"
    assert "(without --quick" not in analysis["recommendation"]["answer"]


def test_what_does_not_fit_is_said_of_each_candidate_with_what_it_holds(
    advisor: Callable[..., Ran], tmp_path: Path
) -> None:
    model = str(Path(__file__).parents[2] / "sample_models" / "deepconn.py")
    words = ("--no-run", *QUICK, "--quiet", "--json", "-o", str(tmp_path / "out"))
    ran = advisor("analyze", model, *words)
    candidates = {c["name"]: c for c in json.loads(ran.out)["candidates"]}
    single_bytes, towers_bytes = (
        max(candidates[name]["predicted"]["peak_memory_bytes"].values())
        for name in ("single", "towers")
    )
    assert towers_bytes < single_bytes
    device = f'preset = "V100"\nmemory_bytes = {(single_bytes + towers_bytes) // 2}\n'
    cluster = tmp_path / "small.toml"
    cluster.write_text(
        "".join(f'[[devices]]\nname = "{name}"\n{device}' for name in ("a", "b"))
        + '[[links]]\nbetween = ["a", "b"]\npreset = "PCIe3"\n'
    )
    ran = advisor("analyze", model, *words, "--hardware", str(cluster))
    candidates = {c["name"]: c for c in json.loads(ran.out)["candidates"]}
    assert candidates["towers"]["failure"] is None
    assert candidates["single"]["failure"]["kind"] == "does-not-fit"
    message = candidates["single"]["failure"]["message"]
    assert message.startswith("on a the step holds")
    assert "word_embedding" in message
    assert json.loads(ran.out)["recommendation"]["verdict"] == "cannot-fit"
    assert json.loads(ran.out)["recommendation"]["candidate"] == "searched"
    peaks = candidates["searched"]["predicted"]["peak_memory_bytes"]
    assert max(peaks.values()) <= (single_bytes + towers_bytes) // 2
    # What one device does not hold has no step time to win against.
    assert json.loads(ran.out)["break_even"] is None


def test_one_family_can_be_asked_for_and_single_always_runs(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path
) -> None:
    words = (
        "--candidates",
        "towers",
        "--no-run",
        *QUICK,
        "--quiet",
        "--json",
        "-o",
        str(tmp_path / "out"),
    )
    ran = advisor("analyze", str(two_towers), *words)
    assert [c["name"] for c in json.loads(ran.out)["candidates"]] == ["single", "towers"]


def test_the_default_folder_is_named_after_the_model_and_what_was_asked(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert advisor("analyze", str(two_towers), "--no-run", *QUICK, "-q").code == 0
    assert (tmp_path / "advisor-out" / "two_towers-no-run" / "analysis.json").is_file()


def test_inference_of_another_batch_size_can_be_asked_for(
    advisor: Callable[..., Ran], two_towers: Path, tmp_path: Path
) -> None:
    words = ("--mode", "infer", "--batch-size", "16", "--no-run", *QUICK, "--quiet", "--json")
    ran = advisor("analyze", str(two_towers), "-o", str(tmp_path / "out"), *words)
    model = json.loads(ran.out)["model"]
    assert (model["mode"], model["batch_size"]) == ("infer", 16)
    # A graph of its own batch is another one, and what differs is said in the user's words.
    graph = str(tmp_path / "model.graph.json.gz")
    assert advisor("trace", str(two_towers), "--mode", "infer", "-o", graph, "-q").code == 0
    towers = str(tmp_path / "out" / "placements" / "towers.json")
    refused = advisor("simulate", graph, "--placement", towers)
    assert refused.code == 2
    assert "this one: the batch was 16, and is 32 here\n" in refused.err


@pytest.mark.slow
def test_a_secret_of_a_script_is_in_nothing_that_is_written_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import sys, os, keras, numpy as np\n"
        "print(sys.argv, os.environ['STORE_PASSWORD'])\n"
        "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((64, 3)), np.ones((64, 1)), epochs=100)\n"
    )
    monkeypatch.setenv("STORE_PASSWORD", "correct-horse")
    words = ("--api-key=battery-staple", "--epochs", "3")
    folder = tmp_path / "out"
    asked = ("analyze", str(path), "-o", str(folder), "--no-run", "--", *words)
    # The environment is that of a process of its own.
    with Command(*asked, temp=tmp_path / "temp") as command:
        ran = command.wait()
    assert ran.code == 0, ran.err
    texts = [ran.out, ran.err, *map(_text, folder.rglob("*"))]
    assert not [text for text in texts if "battery-staple" in text or "correct-horse" in text]
    assert "'--api-key=***', '--epochs', '3'] ***" in (folder / "script-output.txt").read_text()


# Called again, as the advisor traces it: the first such error ends the analysis, another the split.
@pytest.mark.parametrize(("traces", "code"), [(1, 2), (2, 0)])
def test_a_secret_that_a_step_quotes_when_it_is_traced_is_neither_written_nor_shown(
    advisor: Callable[..., Ran], tmp_path: Path, traces: int, code: int
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import sys, tensorflow as tf\n"
        "weights, traces = tf.Variable(1.0), []\n"
        "@tf.function\n"
        "def step(x):\n"
        "    traces.append(x)\n"
        f"    if len(traces) > {traces}:\n"
        "        raise ValueError(f'bad {sys.argv[2]}')\n"
        "    weights.assign_sub(0.1 * tf.reduce_mean(x))\n"
        "    return weights\n"
        "while True:\n"
        "    step(tf.ones(8))\n"
    )
    folder = tmp_path / "out"
    words = ("-o", str(folder), "--no-run", *QUICK, "-v", "--", "--api-key", "battery-staple")
    ran = advisor("analyze", str(path), *words)
    assert ran.code == code
    texts = [ran.out, ran.err, *map(_text, folder.rglob("*"))]
    assert any("bad ***" in text for text in texts)
    assert not any("battery-staple" in text for text in texts)


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if path.is_file() else ""
