"""Harmful edits of four models are caught, each by its culprit; harmless ones pass."""

import random
from pathlib import Path

import pytest
from edits import HARMFUL, HARMLESS

from placement_advisor.check.causes import MEMORY_TOLERANCE, STEP_TOLERANCE
from placement_advisor.check.check_models import CheckOptions, check_models
from placement_advisor.check.lock_file import lock_text, read_config, read_lock
from placement_advisor.check.problem_codes import CheckResult, ProblemCode, Status
from placement_advisor.report.check_report import check_as_text
from placement_advisor.testbed.benchmark import SilentProgress

LEFT, CHANGED = ProblemCode.BACKWARD_LEFT, ProblemCode.SCOPE_CHANGED
TEXTS = {p.stem: p.read_text() for p in sorted((Path(__file__).parent / "models").glob("*.py"))}
# One and a half times what the models need.
BUDGETS = {"deepconn": "1 GB", "ranker": "190 MB", "deep_mnist": "620 MB", "transformer": "230 MB"}


# What else models may be sized by, and run on.
SIZES = {
    "deepconn": ("BATCH", "WORDS", "VOCABULARY", "EMBEDDING", "FILTERS", "UNITS"),
    "ranker": ("BATCH", "VIDEOS", "WATCHED", "EMBEDDING", "PROFILE", "DESCRIPTION", "CONTEXT"),
    "deep_mnist": ("BATCH", "FILTERS"),
    "transformer": ("BATCH", "WORDS", "VOCABULARY", "WIDTH"),
}
MACHINES = ["2xV100-NVLink", "2xT4", "2xP100-SXM2", "2xA100-NVLink3", "2xH100-NVLink4"]


def settings(models, machine, budgets):
    """Return a pyproject.toml for files and the models that they are of."""
    lines = ["[tool.advisor]", f'hardware = "{machine}"']
    for file, model in models.items():
        lines += ["[[tool.advisor.models]]", f'path = "{file}:train_step"']
        lines += [f'max_peak_memory = "{budgets[model]}"']
    return "\n".join(lines)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    return results_of((*HARMFUL, *HARMLESS), tmp_path_factory.mktemp("edited"))


def results_of(made, root, texts=TEXTS, machine=MACHINES[0], budgets=BUDGETS):
    """Check edited models against the lock file of what they were made of."""
    config = root / "pyproject.toml"
    models = [model for model in texts if any(edit.model == model for edit in made)]
    for model in models:
        (root / f"{model}.py").write_text(texts[model])
    config.write_text(settings({f"{model}.py": model for model in models}, machine, budgets))
    result = check_models(read_config(config), CheckOptions(update=True), SilentProgress())
    assert {model.status for model in result.results} == {Status.PASSED}
    lock_file = root / "placements.lock.json"
    before = read_lock(lock_file)
    edits = {f"{edit}.py": edit for edit in made}
    for file, edit in edits.items():
        (root / file).write_text(edit.applied(texts[edit.model]))
    config.write_text(settings({file: e.model for file, e in edits.items()}, machine, budgets))
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


def test_gradients_that_a_tape_takes_in_a_scope_are_told_by_rule_and_line(tmp_path):
    (edit,) = (edit for edit in HARMFUL if str(edit) == "tape-in-a-scope-ranker")
    (result,) = results_of([edit], tmp_path).values()
    first = first_problem(result, LEFT, "with tf.device(FIRST):")
    assert first.what.endswith(": its gradients are taken in a tf.device scope of GPU:0")


def first_problem(result, code, source):
    """Return the first problem of a result, which has a code and stands at a line."""
    first = result.problems[0]
    assert first.code is code
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


def growth(result):
    """Return by what share an edit makes the predicted step longer."""
    return result.after.step_us / result.before.step_us - 1


def harmful_of(found):
    """Return the results of harmful edits; one of them cannot be made at all sizes."""
    return [found[str(edit)] for edit in HARMFUL if found[str(edit)].after is not None]


def least_growth_that_time_alone_shows(found):
    """Return that of the harmful edits which nothing else gives away, whatever the tolerance."""
    seen = {ProblemCode.COPIES, ProblemCode.BYTES, ProblemCode.MEMORY, ProblemCode.NO_KERNEL}
    return min(
        growth(result)
        for result in harmful_of(found)
        if seen.isdisjoint(code for problem in result.problems for code in problem.codes)
    )


@pytest.mark.slow
def test_the_tolerances_lie_between_harmless_edits_and_those_that_time_alone_shows(checked):
    for edit in HARMLESS:
        result = checked[str(edit)]
        before, after = result.before, result.after
        assert abs(growth(result)) < 0.9 * STEP_TOLERANCE, edit
        assert after.bytes_across == before.bytes_across, edit
        for device in before.memory_bytes:
            more = after.peak_bytes(device) - before.peak_bytes(device)
            assert more <= 0.5 * MEMORY_TOLERANCE * before.peak_bytes(device), edit
    assert least_growth_that_time_alone_shows(checked) > 1.1 * STEP_TOLERANCE


def resized(model, chance):
    """Return the text of a model with other sizes."""
    lines = []
    for name in SIZES[model]:
        # One edit is of a layer with 64 filters.
        most = 3 if (model, name) == ("deep_mnist", "FILTERS") else 6
        factor = chance.choice((0.5, 0.75, 1, 1, 1.5, 2)[:most])
        lines.append(f"{name} = int({name} * {factor})")
    if model == "ranker":
        factor = chance.choice((0.5, 1, 2))
        lines.append(f"USER_UNITS = tuple(int(units * {factor}) for units in USER_UNITS)")
    return TEXTS[model].replace("\nSEED = ", "\n".join(["", *lines, "SEED = "]), 1)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [88_101, 88_102, 88_103])
def test_the_tolerance_of_time_lies_between_at_other_sizes_as_well(tmp_path, seed):
    chance = random.Random(seed)
    machine = chance.choice(MACHINES)
    texts = {model: resized(model, chance) for model in SIZES}
    budgets = dict.fromkeys(SIZES, "70 GB")
    found = results_of((*HARMFUL, *HARMLESS), tmp_path, texts, machine, budgets)
    moved = [growth(found[str(edit)]) for edit in HARMLESS]
    alone = least_growth_that_time_alone_shows(found)
    print(machine, min(moved), max(moved), alone)
    print(sorted(round(growth(result), 3) for result in harmful_of(found)))
    assert max(moved) < 0.9 * STEP_TOLERANCE
    assert alone > 1.1 * STEP_TOLERANCE
