"""Harmful edits of four models are caught, each by its culprit; harmless ones pass."""

from pathlib import Path

import pytest
from edits import HARMFUL, HARMLESS

from placement_advisor.check.causes import MEMORY_TOLERANCE, STEP_TOLERANCE
from placement_advisor.check.check_models import CheckOptions, check_models
from placement_advisor.check.lock_file import lock_text, read_config, read_lock
from placement_advisor.check.problems import CheckResult, ProblemCode, Status
from placement_advisor.report.check_report import check_as_text
from placement_advisor.testbed.benchmark import SilentProgress

LEFT, CHANGED = ProblemCode.BACKWARD_LEFT, ProblemCode.SCOPE_CHANGED
MODELS = sorted((Path(__file__).parent / "models").glob("*.py"))
# One and a half times what the models need.
BUDGETS = {"deepconn": "1 GB", "ranker": "190 MB", "deep_mnist": "620 MB", "transformer": "230 MB"}


def settings(models):
    """Return a pyproject.toml for files and the models that they are of."""
    lines = ["[tool.advisor]", 'hardware = "2xV100-NVLink"']
    for file, model in models.items():
        lines += ["[[tool.advisor.models]]", f'path = "{file}:train_step"']
        lines += [f'max_peak_memory = "{BUDGETS[model]}"']
    return "\n".join(lines)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    return results_of((*HARMFUL, *HARMLESS), tmp_path_factory.mktemp("edited"))


def results_of(made, root):
    """Check edited models against the lock file of what they were made of."""
    config = root / "pyproject.toml"
    models = [model for model in MODELS if any(edit.model == model.stem for edit in made)]
    for model in models:
        (root / model.name).write_text(model.read_text())
    config.write_text(settings({model.name: model.stem for model in models}))
    result = check_models(read_config(config), CheckOptions(update=True), SilentProgress())
    assert {model.status for model in result.results} == {Status.PASSED}
    lock_file = root / "placements.lock.json"
    before = read_lock(lock_file)
    edits = {f"{edit}.py": edit for edit in made}
    for file, edit in edits.items():
        (root / file).write_text(edit.applied((root / f"{edit.model}.py").read_text()))
    config.write_text(settings({file: edit.model for file, edit in edits.items()}))
    kept = {f"{file}:train_step": before[f"{e.model}.py:train_step"] for file, e in edits.items()}
    lock_file.write_text(lock_text(kept))
    found = check_models(read_config(config), CheckOptions(), SilentProgress())
    return {result.model.partition(".")[0]: result for result in found.results}


@pytest.mark.slow
@pytest.mark.parametrize("edit", HARMFUL, ids=str)
def test_a_harmful_edit_fails_names_its_culprit_once_and_points_at_the_model(checked, edit):
    result = checked[str(edit)]
    problems = result.problems
    assert result.status is Status.FAILED, result
    effects = [effect for problem in problems for effect in problem.effects]
    culprits = [text for problem in problems for text in problem.culprits]
    said = [*culprits, *(each.what for each in (*problems, *effects))]
    assert any(edit.culprit in text for text in said), said
    named = [text for text in culprits if not text.endswith(" more")]
    for once in (named, [(effect.code, effect.device) for effect in effects]):
        assert len(once) == len(set(once))
    lines = check_as_text(CheckResult(lock_file="l", results=(result,))).splitlines()
    assert len(lines) <= 30
    assert {problem.place.file for problem in problems if problem.place} == {f"{edit}.py"}
    assert problems[0].source


@pytest.mark.slow
@pytest.mark.parametrize("edit", HARMLESS, ids=str)
def test_a_harmless_edit_passes(checked, edit):
    result = checked[str(edit)]
    assert result.status is Status.PASSED, (result.problems, result.error)


def test_a_tape_and_a_removed_scope_are_told_by_rule_and_line(tmp_path):
    named = {
        "tape-for-gradients-ranker": (LEFT, "gradients = tape.gradient("),
        "tape-in-a-scope-ranker": (LEFT, "with tf.device(FIRST):"),
        "scope-removed-ranker": (CHANGED, "item = through(item_tower"),
    }
    found = results_of([edit for edit in HARMFUL if str(edit) in named], tmp_path)
    assert found.keys() == named.keys()
    plain, scoped, _ = (first_problem(found[name], *told) for name, told in named.items())
    assert plain.what.endswith(": its ops have no device and run on GPU:0")
    assert scoped.what.endswith(": its gradients are taken in a tf.device scope of GPU:0")


def first_problem(result, code, source):
    """Return the first problem of a result, which has a code and stands at a line."""
    first = result.problems[0]
    assert first.code is code
    assert first.source is not None
    assert first.source.startswith(source)
    return first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "source"),
    [
        ("tape-for-gradients-transformer", LEFT, "gradients = tape.gradient("),
        ("scopes-in-a-tf-function-deep_mnist", LEFT, "gradients = tf.gradients("),
        ("layer-moved-deepconn", CHANGED, 'with tf.device(FIRST), tf.name_scope("item'),
        ("layer-moved-transformer", CHANGED, "with tf.device(FIRST):"),
        ("variable-elsewhere-ranker", CHANGED, "with tf.device(FIRST):"),
        ("cpu-only-op-pinned-ranker", ProblemCode.NO_KERNEL, "video = tf.strings.to_hash_bucket"),
        ("all-scopes-removed-ranker", CHANGED, "item = through(item_tower"),
    ],
)
def test_an_edit_is_named_by_its_rule_and_its_line(checked, name, code, source):
    first_problem(checked[name], code, source)


@pytest.mark.slow
def test_the_tolerances_lie_between_what_harmless_and_what_harmful_edits_move(checked):
    for edit in HARMLESS:
        before, after = checked[str(edit)].before, checked[str(edit)].after
        assert before is not None
        assert after is not None
        assert abs(after.step_us / before.step_us - 1) < 0.9 * STEP_TOLERANCE, edit
        assert after.bytes_across == before.bytes_across, edit
        for device in before.memory_bytes:
            more = after.peak_bytes(device) - before.peak_bytes(device)
            assert more <= 0.5 * MEMORY_TOLERANCE * before.peak_bytes(device), edit
    slower = []
    for edit in HARMFUL:
        result = checked[str(edit)]
        if any(ProblemCode.SLOWER in problem.codes for problem in result.problems):
            assert result.before is not None
            assert result.after is not None
            slower.append(result.after.step_us / result.before.step_us - 1)
    assert min(slower) > 1.1 * STEP_TOLERANCE
