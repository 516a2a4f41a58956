"""`advisor analyze` on real workers, from a model of two towers."""

import json
import os
import re
import shutil
import signal
import threading
from dataclasses import replace
from functools import partial
from unittest import mock

import jsonschema
import pytest
from cli_answers import analysed, content_of, refusal
from command_runs import Command, run_here
from real_runs import needs_workers
from watched_testbed import Watch, WatchedTestbed, kill, process_ids

from placement_advisor import defaults
from placement_advisor.analysis import runs, step_costs
from placement_advisor.analysis.predictions import with_candidate
from placement_advisor.analysis.runs import Refined
from placement_advisor.candidates.families import NAMES as FAMILY_NAMES
from placement_advisor.candidates.families import SPLITS
from placement_advisor.machine import this_machine
from placement_advisor.report.find_analysis import find_runs
from placement_advisor.report.terminal import MOST_LINES
from placement_advisor.results.contracts import load_schema
from placement_advisor.tf.calls import runner

NAMES = ["single", "towers", "alternating"]
QUICK = ("--effort", "0.01")
FEW = ("--rounds", "5", "--steps", "1", "--candidates", "towers,alternating", *QUICK)


@pytest.fixture(scope="module")
def complete(fork_server, two_towers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysed")
    watch = Watch(output=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatchedTestbed, "watch", watch, raising=False)
        patch.setattr(step_costs, "Testbed", WatchedTestbed)
        return analysed(run_here, two_towers, folder, *FEW, calls=watch.calls)


@pytest.fixture
def broken_run(advisor, two_towers, tmp_path, monkeypatch):
    """Runs the command and does something before one call of the runner."""

    def run(function, label, count, act, *words, model=two_towers, code=0):
        def before(call, testbed):
            if (call.function, call.label, call.count) == (function, label, count):
                act(testbed)

        folder = tmp_path / "out"
        watch = Watch(output=folder, before=before)
        monkeypatch.setattr(WatchedTestbed, "watch", watch, raising=False)
        monkeypatch.setattr(step_costs, "Testbed", WatchedTestbed)
        return analysed(advisor, model, folder, *FEW, *words, code=code, calls=watch.calls)

    return run


@needs_workers
class TestACompleteRun:
    def test_gives_a_verdict_on_a_screen_that_show_prints_again(self, complete):
        ran = complete.ran
        where, answer, *_ = ran.out.splitlines()
        assert where == "Measured on 2 CPU stand-ins (1 core each, gRPC), batch 32, train:"
        assert answer.startswith(("split: ", "stay single", "cannot tell: "))
        assert complete.analysis["recommendation"]["basis"] == "measured"
        assert len(ran.out.splitlines()) <= MOST_LINES
        again = run_here("show", str(complete.folder))
        assert (again.code, again.err, again.out) == (0, "", ran.out)
        in_full = run_here("show", "-v", str(complete.folder)).out
        assert in_full.startswith(complete.text("report.txt"))

    def test_says_what_it_does_line_by_line_and_how_long_is_left(self, complete):
        lines = complete.ran.err.splitlines()
        assert all(line.startswith("advisor: ") for line in lines)
        stages = ("importing", "running", "tracing", "measuring", "timing", "profiling")
        found = [next(i for i, line in enumerate(lines) if stage in line) for stage in stages]
        assert found == sorted(found)
        said = [line for line in lines if "two_towers.py: " not in line]
        assert all(re.search(r", (about|up to) \d+ (s|min) left", line) for line in said)
        # Once more after each look for a candidate that may join.
        timing, *_ = [line for line in said if "timing rounds" in line]
        assert ", up to " in timing
        total_ns = (timings_ns := dict(complete.analysis["timings_ns"])).pop("total")
        assert all(value > 0 for value in timings_ns.values())
        assert sum(timings_ns.values()) == total_ns

    def test_has_a_core_for_each_worker_in_a_network_of_their_own_alone(self, complete):
        ((first, second, client),) = {call.cores for call in complete.calls}
        assert len(first) == len(second) == 1
        assert first != second
        assert client == first  # The client waits on that of the first.
        running = [call for call in complete.calls if call.function == "run_steps"]
        assert {(call.listening_here, call.listening_there) for call in running} == {(0, 2)}

    def test_leaves_what_was_promised_with_each_tower_on_a_device_of_its_own(self, complete):
        assert [c["name"] for c in complete.analysis["candidates"]] == NAMES
        assert sorted(path.name for path in complete.folder.iterdir()) == [
            "analysis.json", "break-even.png", "comparison.png", "graph.json.gz",
            "placements", "predictions", "report.html", "report.md", "report.txt", "rounds.json",
            "runs", "tensorboard", "timeline.png",
        ]  # fmt: skip
        device = json.loads(complete.text("placements/towers.json"))["by_layer"]
        left = {device[layer] for layer in device if "left_" in layer}
        right = {device[layer] for layer in device if "right_" in layer}
        assert len(left) == len(right) == 1
        assert left != right

    @pytest.mark.parametrize("name", NAMES)
    def test_runs_each_candidate_as_it_was_placed_and_predicted(self, complete, name):
        content = json.loads(complete.text(f"placements/{name}.json"))
        jsonschema.validate(content, load_schema("placement"))
        assert content["devices"] == ["worker:0", "worker:1"]
        candidate = complete.candidate(name)
        predicted, measured = candidate["predicted"], candidate["measured"]
        prediction = complete.folder / "predictions" / f"{name}.json"
        assert json.loads(prediction.read_text()) == predicted
        profiles = list((complete.folder / measured["profile"]).glob("*.xplane.pb"))
        # Of the client and of each device that does something.
        assert len(profiles) == (2 if name == "single" else 3)
        assert all(prediction.stat().st_mtime_ns < path.stat().st_mtime_ns for path in profiles)
        assert measured["moved_ops"] == []
        if name == "single":
            assert measured["transfer_count"] == 0
        else:
            assert measured["verification"]["unverified"] == []
            assert measured["transfer_count"] == predicted["transfer_count"] > 0
            assert measured["transfer_bytes"] == predicted["transfer_bytes"] > 0

    def test_times_all_candidates_in_each_round_and_predicts_a_split_before_it_runs(self, complete):
        steps = [len(samples(complete, name)) for name in NAMES]
        assert steps[0] >= 5
        assert steps == [steps[0]] * 3
        first = {c.label: c for c in reversed(complete.calls) if c.function == "prepare"}
        assert "towers" in first["towers"].predictions
        assert "alternating" in first["alternating"].predictions
        # Single runs before that, for the costs that predictions are made of, but is not timed.
        rounds = [c for c in complete.calls if c.function == "run_steps" and c.label == "towers"]
        assert "single" in rounds[0].predictions

    def test_sweeps_what_would_have_to_change_and_times_the_dataset_alone(self, complete):
        found = complete.analysis["break_even"]
        assert found["bandwidth"]["outcome"] in ("crosses", "throughout", "nowhere")
        assert found["batch"]["here_samples"] == 32
        splits = {*NAMES[1:], "searched for faster links"}
        assert {point["candidate"] for point in found["latency"]["points"]} <= splits
        title = "Break-even (simulated, corrected): a split that leaves the batch whole wins"
        assert title in complete.text("report.txt")
        found = complete.analysis["input"]
        assert found["transformations"] == ["TensorSliceDataset", "BatchDataset"]
        time_s = sum(found["batch_ns"]) / 1e9
        assert found["samples_per_s"] == pytest.approx(32 * len(found["batch_ns"]) / time_s)
        assert "samples/s alone; the step (as-is) takes" in complete.text("report.txt")


def samples(run, name):
    return run.candidate(name)["measured"]["step_ns"]["samples"]


@pytest.fixture(scope="module")
def resumed(complete, two_towers, tmp_path_factory):
    """Two rounds more than those of the complete run."""
    folder = tmp_path_factory.mktemp("resumed") / "out"
    shutil.copytree(complete.folder, folder)
    with mock.patch.object(defaults, "MAX_ROUNDS", 1):
        return analysed(run_here, two_towers, folder, "--resume", "--rounds", "2", *FEW[2:])


@needs_workers
class TestAResumedRun:
    def test_adds_its_rounds_to_those_before(self, complete, resumed):
        was, now = (run.analysis["as_is"]["step_ns"]["samples"] for run in (complete, resumed))
        pairs = [(samples(complete, name), samples(resumed, name)) for name in NAMES]
        for before, after in (*pairs, (was, now)):
            assert after[: len(before)] == before
            assert len(after) == len(before) + 2
        assert (complete.analysis["sessions"], resumed.analysis["sessions"]) == (1, 2)
        assert "They ran in 2 sessions." in resumed.text("report.md")
        assert all(resumed.candidate(name)["measured"]["compute_ns"] for name in NAMES)

    def test_predicts_what_was_predicted_before_anything_ran(self, complete, resumed):
        for folder in ("predictions", "placements"):
            before, after = (content_of(run.folder / folder) for run in (complete, resumed))
            assert before == after
        assert resumed.analysis["testbed"] == complete.analysis["testbed"]
        assert resumed.analysis["bound"] == complete.analysis["bound"]
        # It measures no costs and searches nothing.
        assert resumed.analysis["timings_ns"]["measure"] is None
        assert "measuring op times" not in resumed.ran.err

    @pytest.mark.parametrize(
        ("words", "differs"),
        [
            (("--steps", "2"), "--steps: 1 then, 2 now"),
            ((), "graph: "),
        ],
    )
    def test_is_refused_if_rounds_were_others(self, complete, two_towers, tmp_path, words, differs):
        code = two_towers.read_text()
        model = tmp_path / "two_towers.py"
        model.write_text(code if words else code.replace("Dense(64", "Dense(65"))
        before = content_of(complete.folder)
        ran = run_here("analyze", str(model), "-o", str(complete.folder), *FEW, "--resume", *words)
        error = f"cannot be resumed, its rounds ran under other conditions: {differs}"
        assert error in refusal(ran)
        assert content_of(complete.folder) == before

    @pytest.mark.parametrize("word", ["--quick", "--no-run"])
    def test_is_refused_where_nothing_runs(self, two_towers, word):
        error = refusal(run_here("analyze", str(two_towers), "--resume", word))
        assert "--resume adds rounds, and by the other options none run" in error

    def test_that_is_interrupted_loses_none_of_those_before(self, complete, broken_run, tmp_path):
        def interrupt(testbed):
            raise KeyboardInterrupt

        shutil.copytree(complete.folder, tmp_path / "out")
        broken_run("run_steps", "towers", 2, interrupt, "--resume", code=130)
        assert content_of(tmp_path / "out") == content_of(complete.folder)


@pytest.mark.slow
@needs_workers
def test_ports_that_are_accepted_to_be_open_are_told_before_anything_else(broken_run, monkeypatch):
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: False)
    found = broken_run("", "", 0, lambda testbed: None, "--open-ports")
    first, *_ = found.ran.err.splitlines()
    assert first.startswith("advisor: warning: this system allows no private network. Until")
    assert "Until this run ends" in " ".join(found.text("report.md").split())
    # The other test's control: here the workers do listen on the machine's own network.
    running = [call for call in found.calls if call.function == "run_steps"]
    assert {call.listening_here for call in running} == {2}


@pytest.mark.slow
@needs_workers
def test_the_tab_of_tensorboard_is_told_how_far_it_is(broken_run, tmp_path):
    seen = []

    def look(testbed):
        (run,) = find_runs(tmp_path)
        assert run.name == "out (running)"
        seen.append(json.loads(run.overview() or b""))
        assert run.details("towers") is not None

    broken_run("run_steps", "towers", 4, look)
    (then,) = seen
    assert re.fullmatch(r"Running: timing, round \d+ done", then["headline"])
    assert {each["name"] for each in then["candidates"] if each["figures"]} == set(NAMES)
    (run,) = find_runs(tmp_path)
    now = json.loads(run.overview() or b"")
    assert run.name == "out"
    assert now["headline"].startswith(("split", "stay single", "cannot tell"))


def join(forecast, results, effort):
    """Have `towers` join once more, as if it had been searched for."""
    believed = runs.prediction_correction(forecast, results)
    if "searched-2" in forecast.predicted or believed is None:
        return None
    towers = forecast.proposals.placements["towers"]
    found = replace(towers, label="searched-2", family="searched")
    with_it = with_candidate(forecast, found)
    predictions = runs.with_ratio(with_it, "searched-2", believed.ratio(found))
    return Refined(placement=found, predictions=predictions)


@needs_workers
def test_a_worker_killed_in_a_step_costs_its_candidate_and_another_joins(broken_run, monkeypatch):
    def kill_soon(testbed):
        # Two thousand steps more, so that the worker dies in the middle of one.
        testbed._client.start(runner.run_steps, "alternating", 0, 2_000)
        kill(testbed, "worker:1")

    monkeypatch.setattr(runs, "refine", join)
    found = broken_run("run_steps", "alternating", 2, kill_soon, "--json")
    failure = found.candidate("alternating")["failure"]
    assert (failure["kind"], failure["message"]) == ("crashed", "worker:1 was killed by SIGKILL")
    warning = "advisor: warning: alternating has no result: crashed: worker:1 was killed by SIGKILL"
    assert warning in found.ran.err
    assert json.loads(found.ran.out) == found.analysis
    single, towers, joined = map(found.candidate, ("single", "towers", "searched-2"))
    for each in (single, towers, joined):
        assert each["failure"] is None
        assert each["measured"]["profile"] is not None
    assert found.analysis["recommendation"]["candidate"] in ("towers", "searched-2")
    # It joined after the first round.
    counts = [len(samples(found, name)) for name in ("single", "towers", "searched-2")]
    assert counts[0] >= 5
    assert counts == [counts[0], counts[0], counts[0] - 1]
    assert joined["measured"]["verification"]["unverified"] == []
    assert joined["measured"]["transfer_count"] == towers["measured"]["transfer_count"] > 0
    assert joined["predicted"] == towers["predicted"]
    assert joined["predicted_after_runs"]["runs"] == 2
    assert towers["predicted_after_runs"] is None
    for name, kept in (("", "predicted"), (".after-2-runs", "predicted_after_runs")):
        assert json.loads(found.text(f"predictions/searched-2{name}.json")) == joined[kept]
    assert (found.folder / "placements" / "searched-2.json").exists()
    assert "after 2 runs" in found.text("report.md")


def pause(testbed):
    pid = process_ids(testbed)["worker:1"]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (pid, signal.SIGCONT)).start()


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(
    ("call", "act", "kinds"),
    [
        # Without single nothing can be told.
        (("run_steps", "single", 4), partial(kill, name="worker:0"), {"single": "crashed"}),
        (("verify", "towers", 0), partial(kill, name="client"), {"towers": "crashed"}),
        (("run_steps", "towers", 2), pause, {}),
    ],
)
def test_what_is_killed_or_paused_costs_the_candidate_that_it_ran(broken_run, call, act, kinds):
    found = broken_run(*call, act)
    failures = {name: found.candidate(name)["failure"] for name in NAMES}
    assert {name: each["kind"] for name, each in failures.items() if each} == kinds
    cannot_tell = found.analysis["recommendation"]["verdict"] == "cannot-tell"
    assert cannot_tell or "single" not in kinds


@needs_workers
def test_a_worker_killed_early_ends_the_analysis_and_is_named(broken_run, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # No calibration is kept there.
    found = broken_run("calibrate", "", 0, lambda testbed: kill(testbed, "worker:1"), code=2)
    assert "calibration failed: worker:1 was killed by SIGKILL" in refusal(found.ran)
    assert not found.folder.exists()


# Dies in the user's own process once the step has run some times there.
FRAGILE = """
import os
calls = []
class Fragile(keras.Model):
    def train_step(self, data):
        calls.append(data)
        if len(calls) > 1: os._exit(9)
        return super().train_step(data)
model = Fragile([left, right], score)
model.compile(optimizer='adam', loss='mean_squared_error')
"""
# More than enough for the example batches.
HANGING = """
import time
def rows():
    for number in range(10_000):
        if number == 320: time.sleep(3_600)
        yield (values[0], values[1]), values[2, :1]
row = tf.TensorSpec(64)
shapes = ((row, row), tf.TensorSpec(1))
dataset = tf.data.Dataset.from_generator(rows, output_signature=shapes).batch(32)
"""


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(
    ("code", "warning", "is_timed"),
    [
        (FRAGILE, "as-is was not timed: loader exited with status 9", False),
        (HANGING, "the dataset was not timed alone: loader gave no answer within 2 s", True),
    ],
)
def test_what_fails_beside_candidates_costs_a_warning_alone(
    analyze, two_towers, monkeypatch, code, warning, is_timed
):
    monkeypatch.setattr(runs, "_INPUT_LIMIT_S", 2.0)
    found = analyze(two_towers.read_text() + code, "--verbose", *FEW)
    assert " ".join(found.ran.out.split()).count(warning) == 1
    assert found.analysis["input"] is None
    assert (found.analysis["as_is"] is not None) is is_timed
    assert all(c["failure"] is None for c in found.analysis["candidates"])


@pytest.fixture
def two_cores(monkeypatch):
    """A machine of two cores and no GPU on which nothing may run."""
    monkeypatch.setattr(this_machine, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delattr(step_costs, "Testbed")


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(
    ("words", "names", "reason"),
    [
        ("--no-run", {*FAMILY_NAMES} - {"as-written"}, "--no-run: no step was executed"),
        ("--devices 3", {"single", "towers"}, "3 devices need 3 cores of their own"),
        ("--testbed none", {"single", "towers"}, "--testbed none: nothing was run"),
    ],
)
def test_where_nothing_runs_all_is_simulated_and_says_so(analyze, two_towers, words, names, reason):
    families = () if len(names) > 2 else ("--candidates", "towers")
    found = analyze(two_towers, "--quiet", *QUICK, *words.split(), *families)
    assert found.ran.err == ""
    assert found.ran.out.startswith("Simulated for ")
    assert reason in " ".join(found.ran.out.split())
    analysis, candidates = found.analysis, found.analysis["candidates"]
    assert analysis["recommendation"]["basis"] == "simulated"
    assert (analysis["as_is"], analysis["input"]) == (None, None)
    assert analysis["break_even"]["free_copies"]["ratio"] > 0
    assert [c["measured"] for c in candidates] == [None] * len(candidates)
    assert all(c["predicted"] is not None for c in candidates if not c["failure"])
    assert {c["name"] for c in candidates} == names
    runs = found.folder / "runs"
    assert {str(path.relative_to(runs)) for path in runs.glob("*/plugins/profile/*")} == {
        f"{c['name']}/plugins/profile/simulated" for c in candidates if c["predicted"]
    }


@pytest.mark.usefixtures("two_cores")
def test_a_quick_analysis_runs_and_draws_nothing_and_splits_no_batch(analyze, advisor, two_towers):
    found = analyze(two_towers, "--quick", "-q")
    where = "Simulated for 2 CPU stand-ins (1 core each, gRPC), batch 32, train (--quick: no step "
    shown = " ".join(found.ran.out.split())
    assert shown.startswith(f"{where}was executed, no split of the batch tried):")
    assert "Next: the same command without --quick, about " in shown
    analysis = found.analysis
    assert analysis["recommendation"]["basis"] == "simulated"
    assert analysis["recommendation"]["next_run"]["change"] == "without --quick"
    assert (analysis["options"]["run"], analysis["options"]["quick"]) == (False, True)
    assert {c["name"] for c in analysis["candidates"]} == {*FAMILY_NAMES} - {"as-written", *SPLITS}
    assert (analysis["break_even"], analysis["timings_ns"]["run"]) == (None, None)
    assert {path.name for path in found.folder.iterdir()} - {"how_to_split.py"} == {
        "analysis.json", "graph.json.gz", "placements", "predictions", "report.md",
        "report.txt",
    }  # fmt: skip
    assert ".png" not in found.text("report.md")
    again = advisor("show", "-v", str(found.folder))
    assert again.out == found.text("report.txt")
    assert "report.html" not in again.out


def test_what_is_quick_splits_the_batch_if_asked_to_for_devices_elsewhere_too(analyze, two_towers):
    words = ("--quick", "--candidates", "batch", "--hardware", "2xV100-NVLink", "-q")
    analysis = analyze(two_towers, *words).analysis
    assert [c["name"] for c in analysis["candidates"]] == ["single", "batch"]
    assert "--quick" not in analysis["testbed"]["not_run"]
    # Nothing can run there, but a whole analysis has more to tell.
    assert analysis["recommendation"]["next_run"]["change"] == "without --quick"
    assert "(without --quick" not in analysis["recommendation"]["answer"]


def test_what_does_not_fit_is_said_of_a_candidate_with_what_it_holds(analyze, two_towers, tmp_path):
    model = two_towers.read_text().replace("Dense(64,", "Dense(2_048,")
    found = analyze(model, "--quick", "-q")
    single_bytes, towers_bytes = (
        max(found.candidate(name)["predicted"]["peak_memory_bytes"].values())
        for name in ("single", "towers")
    )
    assert towers_bytes < single_bytes
    memory_bytes = (single_bytes + towers_bytes) // 2
    device = f'preset = "V100"\nmemory_bytes = {memory_bytes}\n'
    cluster = tmp_path / "small.toml"
    cluster.write_text(
        "".join(f'[[devices]]\nname = "{name}"\n{device}' for name in ("a", "b"))
        + '[[links]]\nbetween = ["a", "b"]\npreset = "PCIe3"\n'
    )
    small = analyze(model, *QUICK, "--hardware", str(cluster), "-q", into="small")
    assert small.candidate("towers")["failure"] is None
    failure = small.candidate("single")["failure"]
    assert failure["kind"] == "does-not-fit"
    assert failure["message"].startswith("on a the step holds")
    assert "left_hidden" in failure["message"]
    answer = small.analysis["recommendation"]
    assert (answer["verdict"], answer["candidate"]) == ("cannot-fit", "searched")
    peaks = small.candidate("searched")["predicted"]["peak_memory_bytes"]
    assert max(peaks.values()) <= memory_bytes
    # What one device does not hold has no step time to win against.
    assert small.analysis["break_even"] is None


def test_inference_of_another_batch_size_can_be_asked_for(analyze, advisor, two_towers, tmp_path):
    found = analyze(two_towers, "--mode", "infer", "--batch-size", "16", "--quick", "-q")
    model = found.analysis["model"]
    assert (model["mode"], model["batch_size"]) == ("infer", 16)
    # A graph of its own batch is another one, and what differs is said in the user's words.
    graph = str(tmp_path / "model.graph.json.gz")
    assert advisor("trace", str(two_towers), "--mode", "infer", "-o", graph, "-q").code == 0
    towers = str(found.folder / "placements" / "towers.json")
    error = refusal(advisor("graph", graph, "--format", "mermaid", "--placement", towers))
    assert "this one: the batch was 16, and is 32 here\n" in error


@pytest.mark.slow
def test_a_secret_of_a_script_is_in_nothing_that_is_written_or_shown(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text(
        "import sys, os, keras, numpy as np\n"
        "print(sys.argv, os.environ['STORE_PASSWORD'])\n"
        "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((64, 3)), np.ones((64, 1)), epochs=100)\n"
    )
    monkeypatch.setenv("STORE_PASSWORD", "correct-horse")

    def run(*words):  # The environment is that of a process of its own.
        with Command(*words, temp=tmp_path / "temp") as command:
            return command.wait()

    words = ("--no-run", "--", "--api-key=battery-staple", "--epochs", "3")
    found = analysed(run, path, tmp_path / "out", *words)
    assert not any("battery-staple" in t or "correct-horse" in t for t in found.texts())
    assert "'--api-key=***', '--epochs', '3'] ***" in found.text("script-output.txt")


# Called again, as the advisor traces it: the first such error ends the analysis, another the split.
@pytest.mark.parametrize(("traces", "code"), [(1, 2), (2, 0)])
def test_a_secret_that_a_traced_step_quotes_is_neither_written_nor_shown(analyze, traces, code):
    script = (
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
    words = ("--no-run", *QUICK, "-v", "--", "--api-key", "battery-staple")
    texts = analyze(script, *words, code=code).texts()
    assert any("bad ***" in text for text in texts)
    assert not any("battery-staple" in text for text in texts)
