"""Do tests notice a small mistake in what simulates, estimates, proposes, compares and proves?

Of all mutants of these modules so many are drawn, with a fixed seed. One that no test notices is
printed with its difference, and `mutants_explained.toml` has to say why it does no
harm: it changes nothing that anyone could see, or it only weakens a bound. Without that the
campaign fails.
"""

import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

from campaign import drawn, run_campaign
from mutation import PACKAGE, ROOT, mutants
from tables import table_head, table_row
from workshop import Workshop

EXPLAINED = Path(__file__).with_name("mutants_explained.toml")
# What an explanation may show, and nothing else.
_REASONS = ("equal: ", "weaker: ")
# Tests that are to notice mistakes in modules, by patterns within the package; those that are fast
# and notice most come first.
# The plugin's tests run pytest in their process, which warns of what a workshop has imported.
_PLUGIN = "--ignore=tests/check/test_pytest_plugin.py"
AREAS = {
    ("tests/graph",): ("graph/**/*.py",),
    ("tests/simulator",): ("simulator/*.py",),
    ("tests/cost",): ("cost/**/*.py",),
    ("tests/candidates",): ("candidates/**/*.py",),
    ("tests/solvers",): ("solvers/*.py",),
    ("tests/measurement", "tests/analysis/test_recommend.py", "tests/check", _PLUGIN): (
        *("measurement/*.py", "analysis/verdict.py", "check/c*.py", "check/judgement.py"),
    ),
    ("tests/profile",): ("profile/*.py",),
}
COUNT, SEED = 300, 51


@cache
def drawn_mutants():
    """Return the mutants that are drawn and the tests of each, by name."""
    every = {}
    for tests, patterns in AREAS.items():
        paths = [path for pattern in patterns for path in (ROOT / PACKAGE).glob(pattern)]
        for module in sorted(path.relative_to(ROOT / PACKAGE).as_posix() for path in paths):
            every |= {mutant.name: (mutant, tests) for mutant in mutants(module)}
    return {name: every[name] for name in drawn(every, COUNT, SEED)}


def explanations():
    found = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    for name, reason in found.items():
        if not reason.startswith(_REASONS):
            raise ValueError(f"{name}: {reason!r} begins with none of {_REASONS}")
    return found


def examination(folder):
    """Return what runs tests on a mutant, in a workshop for each area, and says what came of it."""

    @cache
    def workshop(tests):
        return Workshop(Path(tempfile.mkdtemp(dir=folder)), tests)

    def examine(name):
        mutant, tests = drawn_mutants()[name]
        outcome = workshop(tests).outcome(mutant)
        return outcome if outcome["killed_by"] else {**outcome, "difference": mutant.difference}

    return examine


def unexplained(results):
    known = explanations()
    return [r for r in results if r["killed_by"] is None and r["case"] not in known]


def table(results):
    """Return counts by module, and all survivors with their differences and reasons."""
    known = explanations()
    lines = [table_head("module | mutants | noticed by a test | survive")]
    modules = [result["case"].split(" ", 1)[0] for result in results]
    survivors = [result for result in results if result["killed_by"] is None]
    for module in sorted(set(modules)):
        alive = sum(result["case"].startswith(f"{module} ") for result in survivors)
        count = modules.count(module)
        lines.append(table_row(module, count, count - alive, alive))
    told = f"{len(survivors)}, {len(unexplained(results))} of them unexplained"
    lines.append(table_row("all", len(results), len(results) - len(survivors), told))
    for result in survivors:
        reason = known.get(result["case"], "**not explained**")
        lines += ["", f"`{result['case']}`: {reason}", "", "```diff"]
        lines += [*result["difference"].splitlines()[2:], "```"]
    seconds = sum(result["cpu_s"] for result in results)
    lines += ["", f"{seconds / 60:.0f} minutes of the processor's time."]
    return "\n".join(lines)


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = run_campaign("mutants", list(drawn_mutants()), examination(folder), table)
    if found := unexplained(results):
        sys.exit(f"{len(found)} survivors are not explained in {EXPLAINED.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
