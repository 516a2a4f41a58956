"""`advisor check` on a small model that is placed by hand, and on what else a project may hold."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_answers import refusal
from command_runs import ENDS_WITHIN_S, Command, run_here, wait_until
from two_matrices import TWO_MATRICES

from placement_advisor.graph.op_graph import OpGraph

LOCK = "placements.lock.json"
MOVED = ("with tf.device(SECOND), ", "with ")
PLACED = {"lower": "GPU:0", "upper": "GPU:1", "join": "GPU:0"}


@dataclass(frozen=True, slots=True)
class Project:
    root: Path

    def model(self, name="m.py", *edits):
        text = TWO_MATRICES
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        (self.root / name).write_text(text)

    def settings(self, *models, hardware="2xV100-NVLink"):
        """Write settings of models, each as lines of TOML."""
        head = f'[tool.advisor]\nhardware = "{hardware}"\n'
        tables = "".join(f"[[tool.advisor.models]]\n{model}\n" for model in models)
        (self.root / "pyproject.toml").write_text(head + tables)

    @property
    def lock(self):
        return self.root / LOCK

    def records(self):
        return json.loads(self.lock.read_text())["models"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one model, in the current folder."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    found = Project(root)
    found.model()
    found.settings('path = "m.py"')
    return found


@pytest.fixture(scope="module")
def locked_text(fork_server, tmp_path_factory):
    found = Project(tmp_path_factory.mktemp("locked"))
    found.model()
    found.settings('path = "m.py"')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found.root)
        ran = run_here("check", "--update", "--quiet")
    assert ran.code == 0, ran.out + ran.err
    return found.lock.read_text()


@pytest.fixture
def locked(project, locked_text):
    project.lock.write_text(locked_text)
    return project


@pytest.fixture
def check(advisor):
    def run(*words):
        ran = advisor("check", *words)
        assert "Traceback" not in ran.err
        return ran

    return run


@pytest.fixture
def graphs(project, locked_text):
    """The project with a graph file, and code that leaves a mark when it runs."""
    ran = run_here("trace", "m.py", "-o", "m.graph.json.gz")
    assert ran.code == 0, ran.err
    project.model("m.py", ("import tensorflow", 'open("was-run", "w").close()\nimport tensorflow'))
    project.settings('path = "m.py"\ngraph = "m.graph.json.gz"\nplacement = "alternating"')
    return project


def test_a_model_that_is_not_locked_fails_and_says_what_to_do(project, check):
    ran = check()
    assert ran.code == 1
    assert "FAILED m.py (pyproject.toml:3)" in ran.out
    assert "not-in-lock-file: the lock file does not have this model" in ran.out
    assert "advisor check --update" in ran.out
    assert not project.lock.exists()


def test_what_was_locked_passes_and_an_update_gives_the_same_bytes(locked, check):
    before = locked.lock.read_bytes()
    ran = check()
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 model: 1 passed")
    assert locked.lock.read_bytes() == before
    assert list(locked.records()) == ["m.py"]
    assert check("--update").code == 0
    assert locked.lock.read_bytes() == before


def test_a_harmful_edit_fails_with_culprit_and_line(locked, check):
    locked.model("m.py", MOVED)
    text = (locked.root / "m.py").read_text()
    line = text[: text.index("@ upper_kernel")].count("\n") + 1
    forms = ("json", "github", "sarif", "markdown")
    reports = {form: locked.root / f"report.{form}" for form in forms}
    files = [f"--format={form}={path.name}" for form, path in reports.items()]
    ran = check("--format", "text", *files)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert len(lines) <= 30
    assert lines[2:6] == [
        "FAILED m.py (pyproject.toml:3)",
        "  scope-changed: 1 layer stands in no tf.device scope any more: it runs on GPU:0, not on "
        "GPU:1",
        f"    where: m.py:{line}: upper = tf.reduce_max(others @ upper_kernel, axis=1)",
        f"    by: upper: GPU:1 -> GPU:0 (m.py:{line})",
    ]
    assert lines[-1] == "Next: advisor explain scope-changed"
    result = json.loads(reports["json"].read_text())
    assert result["exit_code"] == 1
    (problem,) = result["results"][0]["problems"]
    assert problem["code"] == "scope-changed"
    assert problem["place"] == {"file": "m.py", "line": line}
    assert problem["effects"][0]["code"] == "slower-step"
    errors = [each for each in reports["github"].read_text().splitlines() if "::error" in each]
    assert len(errors) == 1
    assert errors[0].startswith(f"::error file=m.py,line={line},title=m.py%3A scope-changed::")
    (found,) = json.loads(reports["sarif"].read_text())["runs"][0]["results"]
    assert found["ruleId"] == "scope-changed"
    for form in ("markdown", "github", "sarif"):
        assert reports[form].read_text().count("effect: slower-step: ") == 1


@pytest.mark.parametrize("checkout", [".git", "GITHUB_WORKSPACE"])
def test_places_are_within_the_repository_around_the_project(project, check, monkeypatch, checkout):
    repository = project.root.parent
    if checkout == ".git":
        (repository / ".git").mkdir()
    else:  # As a checkout by an archive leaves it.
        monkeypatch.setenv("GITHUB_WORKSPACE", str(repository))
    (project.root / "deeper").mkdir()
    monkeypatch.chdir(project.root / "deeper")
    ran = check("--graphs-only", "--format", "github", "--format", "sarif=report.sarif")
    assert ran.code == 2
    assert ran.out.startswith("::error file=project/pyproject.toml,line=3,title=m.py%3A could-not")
    report = json.loads((project.root / "deeper" / "report.sarif").read_text())
    (found,) = report["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "project/pyproject.toml"


def test_all_that_changed_is_there_on_demand_and_an_update_accepts_it(locked, check):
    locked.model("m.py", MOVED)
    assert "copies per step  " not in check().out
    long = check("--verbose").out
    assert "  copies per step  " in long
    assert "~ layer upper: GPU:1 -> GPU:0" in long
    ran = check("--update")
    assert ran.code == 0
    assert "accepted: " in ran.out
    assert check().code == 0


def break_models(project):
    """Write models that fail to trace, one by an exception, one with its process."""
    (project.root / "broken.py").write_text("raise RuntimeError('broken on purpose')")
    (project.root / "dead.py").write_text("import os; os._exit(3)")


def test_a_model_that_fails_to_trace_does_not_hide_the_others(locked, check):
    break_models(locked)
    locked.settings('path = "m.py"', 'path = "broken.py"', 'path = "dead.py"')
    ran = check()
    assert ran.code == 2
    assert "COULD NOT RUN broken.py (pyproject.toml:5)" in ran.out
    assert "COULD NOT RUN dead.py (pyproject.toml:7)" in ran.out
    assert ran.out.splitlines()[-1] == "3 models: 2 could not run, 1 passed"
    locked.model("m.py", MOVED)
    assert check().code == 1
    before = locked.lock.read_bytes()
    ran = check("--update")
    assert ran.code == 2
    assert f"{LOCK} stays as it was: broken.py" in ran.err
    assert locked.lock.read_bytes() == before


def test_an_update_of_one_model_keeps_the_others_and_of_all_forgets_what_is_gone(locked, check):
    break_models(locked)
    locked.model("new.py")
    locked.settings('path = "m.py"', 'path = "new.py:workload"', 'path = "broken.py"')
    kept = locked.records()["m.py"]
    ran = check("--update", "new.py")
    assert ran.code == 0, ran.out
    assert locked.records().keys() == {"m.py", "new.py:workload"}
    assert locked.records()["m.py"] == kept
    assert "broken" not in ran.out
    locked.settings('path = "new.py"')
    assert check("--update").code == 0
    assert locked.records().keys() == {"new.py"}


def test_a_model_that_is_not_configured_is_refused(locked, check):
    locked.settings('path = "models/ranker.py:step"', 'path = "m.py"')
    ran = check("models/rankr.py")
    assert ran.code == 2
    assert "models/rankr.py: not among the models in pyproject.toml" in ran.err
    assert "did you mean models/ranker.py:step?" in ran.err
    assert "there are m.py, models/ranker.py:step" in check("zzzzzzz").err


def test_side_by_side_and_one_after_the_other_say_the_same(project, check):
    for name, width in (("a.py", 64), ("b.py", 128), ("c.py", 192)):
        project.model(name, ("WIDTH, BATCH = 512", f"WIDTH, BATCH = {width}"))
    project.settings('path = "c.py"', 'path = "a.py"', 'path = "b.py"', 'path = "gone.py"')
    found = [check("--format", "json", "--jobs", jobs) for jobs in ("1", "2")]
    assert [ran.code for ran in found] == [1, 1]
    assert found[0].out == found[1].out
    models = [result["model"] for result in json.loads(found[0].out)["results"]]
    assert models == ["a.py", "b.py", "c.py", "gone.py"]


def test_broken_budgets_are_not_accepted_by_an_update(project, check):
    project.settings('path = "m.py"\nmax_transfer_bytes = "1 kB"\nmax_peak_memory = "2 kB"')
    ran = check("--update")
    assert ran.code == 1
    assert " cross per step, max_transfer_bytes is 1.00 kB" in ran.out
    assert "max_peak_memory is 2.00 kB" in ran.out
    assert check().code == 1


@pytest.mark.parametrize("words", [(), ("--update",)])
def test_a_damaged_lock_file_is_one_error_and_stays(project, check, words):
    content = '{\n<<<<<<< HEAD\n"a": 1\n'
    project.lock.write_text(content)
    assert f"advisor: error: {LOCK}: merge conflict at line 2" in refusal(check(*words))
    assert project.lock.read_text() == content
    assert {path.name for path in project.root.iterdir()} == {"m.py", "pyproject.toml", LOCK}


def test_a_folder_that_cannot_be_written_is_told_before_any_work(locked, check, monkeypatch):
    before = locked.lock.read_bytes()

    # Root may write anywhere, so that the system has to be spoken for.
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("placement_advisor.files.output.tempfile.mkdtemp", refuse)
    assert f"{LOCK}: cannot be written: .: Permission denied" in refusal(check("--update"))
    assert locked.lock.read_bytes() == before


@pytest.mark.parametrize(
    ("formats", "said"),
    [
        ("nonsense", "text, json, github, sarif, markdown"),
        *((form, f"--format {form}: not a format") for form in ("json=", "=a.txt", "", "JSON")),
        (f"json={LOCK}", "is the lock file, so no report goes there"),
        ("json=./pyproject.toml", "is read, so no report goes there"),
        ("json=a text=./a", "gets another report, so no report goes there"),
    ],
)
def test_a_format_unknown_or_in_the_place_of_a_file_is_refused(locked, check, formats, said):
    before = locked.lock.read_bytes()
    assert said in refusal(check(*(f"--format={form}" for form in formats.split(" "))))
    assert locked.lock.read_bytes() == before
    assert not (locked.root / "a").exists()


def test_hardware_that_means_nothing_is_named_with_its_line(project, check):
    project.settings('path = "m.py"', hardware="2xV1000")
    said = "pyproject.toml, line 2: hardware: hardware '2xV1000': unknown device"
    assert said in refusal(check())


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ('path = "gone.py"', "gone.py: no such file"),
        ('path = "m.py"\nplacement = "tower"', "unknown placement 'tower'"),
        ('path = "m.py:nothing"', "nothing"),
    ],
)
def test_a_model_that_cannot_be_checked_is_told_with_its_line(locked, check, model, said):
    locked.settings(model)
    before = locked.lock.read_bytes()
    ran = check("--update")
    assert ran.code == 2
    assert "(pyproject.toml:3)" in ran.out
    assert said in ran.out
    assert locked.lock.read_bytes() == before


def test_graph_files_are_checked_without_running_code(graphs, check):
    assert check("--graphs-only", "--update").code == 0
    assert check("--graphs-only").code == 0
    graph = OpGraph.load(graphs.root / "m.graph.json.gz")
    by_hand = {
        "schema_version": 1,
        **{"label": "mine", "family": "by hand", "rationale": "", "by_op": {}},
        "graph_fingerprint": graph.fingerprint,
        "devices": ["GPU:0", "GPU:1"],
        "by_layer": {name: PLACED.get(name, "GPU:0") for name in ("", *graph.layers())},
    }
    (graphs.root / "p.json").write_text(json.dumps(by_hand))
    graphs.settings('path = "m.py"\ngraph = "m.graph.json.gz"\nplacement = "p.json"')
    assert check("--graphs-only", "--update").code == 0
    assert check("--graphs-only").code == 0
    assert graphs.records()["m.py"]["layers"]["upper"]["forward"] == "GPU:1"
    assert not (graphs.root / "was-run").exists()


def test_a_graph_file_and_its_model_are_the_same_step(graphs, check, locked_text):
    graphs.lock.write_text(locked_text)
    graphs.settings('path = "m.py"\ngraph = "m.graph.json.gz"')
    ran = check("--graphs-only")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "1 model: 1 passed")
    assert not (graphs.root / "was-run").exists()
    assert check("--graphs-only", "--update").code == 0
    before = graphs.lock.read_bytes()
    assert check("--update").code == 0
    assert (graphs.root / "was-run").exists()
    assert graphs.lock.read_bytes() == before


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (None, "no graph file is configured, and --graphs-only runs no model code"),
        ("bad.graph.json.gz", "bad.graph.json.gz: "),
        ("gone.graph.json.gz", "gone.graph.json.gz: "),
    ],
)
def test_a_model_without_a_graph_file_or_with_a_bad_one_is_told(graphs, check, graph, said):
    (graphs.root / "bad.graph.json.gz").write_text("no graph")
    graphs.settings('path = "m.py"' + (f'\ngraph = "{graph}"' if graph else ""))
    ran = check("--graphs-only")
    assert ran.code == 2
    assert said in ran.out
    assert not (graphs.root / "was-run").exists()


@pytest.mark.slow
def test_the_same_commit_gives_the_same_bytes_anywhere(locked, tmp_path):
    locked.model("m.py", MOVED)
    locked.settings('path = "m.py"', 'path = "n.py"\nplacement = "auto"', 'path = "gone.py"')
    locked.model("n.py")
    other = tmp_path / "elsewhere"
    other.mkdir()
    for path in locked.root.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    found = []
    for seed, folder in (("0", locked.root), ("1", other)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONHASHSEED", seed)
            with Command(
                "check", "--format", "json", "--format", "sarif=s", "--quiet",
                temp=tmp_path / f"temp{seed}", cwd=folder,
            ) as command:  # fmt: skip
                ran = command.wait()
        assert ran.code == 1, ran.err
        found.append((ran.out, (folder / "s").read_bytes()))
    assert found[0] == found[1]
    assert str(tmp_path) not in found[0][0]


def test_from_a_folder_below_only_names_of_files_differ(locked, check, monkeypatch):
    locked.model("m.py", MOVED)
    here = json.loads(check("--format", "json").out)
    (locked.root / "below").mkdir()
    monkeypatch.chdir(locked.root / "below")
    there = json.loads(check("--format", "json").out)
    assert (here.pop("lock_file"), there.pop("lock_file")) == (LOCK, f"../{LOCK}")
    assert here == there


def test_ctrl_c_while_models_are_traced_ends_everything(locked, tmp_path):
    (locked.root / "m.py").write_text("while True: pass\n")
    (locked.root / "n.py").write_text("while True: pass\n")
    locked.settings('path = "m.py"', 'path = "n.py"')
    before = locked.lock.read_bytes()
    words = ("check", "--update", "--jobs", "2", "--format", "json=report.json")
    with Command(*words, temp=tmp_path / "temp", cwd=locked.root) as command:
        command.wait_for_line("running")
        assert wait_until(lambda: len(command.processes()) >= 4)
        time.sleep(0.3)
        os.killpg(command.process.pid, signal.SIGINT)
        ran = command.wait(timeout_s=ENDS_WITHIN_S)
        assert command.processes_left() == []
    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "advisor: interrupted"
    assert "Traceback" not in ran.err
    assert locked.lock.read_bytes() == before
    # Python's own cache is the user's; see PYTHONDONTWRITEBYTECODE.
    left = {path.name for path in locked.root.iterdir()} - {"__pycache__"}
    assert left == {"m.py", "n.py", "pyproject.toml", LOCK}
    assert list((tmp_path / "temp").iterdir()) == []
