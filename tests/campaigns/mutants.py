"""Do tests notice a small mistake in what simulates, estimates, proposes, compares and proves?

Of all mutants of these modules so many are drawn, with a fixed seed. One that no test notices is
printed with its difference, and `mutants_explained.toml` has to say why it does no
harm: it changes nothing that anyone could see, or it only weakens a bound. Without that the
campaign fails.
"""

import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from campaign import drawn, run_campaign
from mutation import PACKAGE, ROOT, mutants
from workshop import Workshop

EXPLAINED = Path(__file__).with_name("mutants_explained.toml")
# What an explanation may show, and nothing else.
_REASONS = ("equal: ", "weaker: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Modules, by patterns within the package, and the tests that are to notice mistakes there."""

    modules: tuple[str, ...]
    # Those that are fast and notice most come first.
    tests: tuple[str, ...]

    def files(self):
        """Return the modules, within the package."""
        folder = ROOT / PACKAGE
        paths = (path for pattern in self.modules for path in folder.glob(pattern))
        return sorted(path.relative_to(folder).as_posix() for path in paths)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is asked about: of all mutants of its areas so many are drawn."""

    areas: tuple[Area, ...]
    count: int
    seed: int

    @cached_property
    def _area_of(self):
        return {module: area for area in self.areas for module in area.files()}

    @cached_property
    def every_mutant(self):
        """All mutants of the modules, by name."""
        return {mutant.name: mutant for module in self._area_of for mutant in mutants(module)}

    @cached_property
    def mutants(self):
        """Those that are drawn, by name."""
        every = self.every_mutant
        return {name: every[name] for name in drawn(list(every), self.count, self.seed)}

    def tests_of(self, mutant):
        """Return the tests of the mutant's area."""
        return self._area_of[mutant.module].tests


CORE = Subject(
    areas=(
        Area(modules=("graph/**/*.py",), tests=("tests/graph",)),
        Area(modules=("simulator/*.py",), tests=("tests/simulator",)),
        Area(modules=("cost/**/*.py",), tests=("tests/cost",)),
        Area(modules=("candidates/**/*.py",), tests=("tests/candidates",)),
        Area(modules=("solvers/*.py",), tests=("tests/solvers",)),
        Area(
            modules=("measurement/*.py", "analysis/verdict.py", "check/c*.py"),
            tests=("tests/measurement", "tests/analysis/test_recommend.py", "tests/check"),
        ),
        Area(modules=("profile/*.py",), tests=("tests/profile",)),
    ),
    count=300,
    seed=51,
)


def explanations():
    """Return why mutants do no harm, by name."""
    found = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    for name, reason in found.items():
        if not reason.startswith(_REASONS):
            raise ValueError(f"{name}: {reason!r} begins with none of {_REASONS}")
    return found


class Examination:
    """Runs the tests of a subject on its mutants, in a workshop for each area."""

    def __init__(self, subject, folder):
        self._subject, self._folder = subject, folder
        self._workshops = {}

    def __call__(self, name):
        """Return the outcome of a mutant, with its difference if it survives."""
        mutant = self._subject.mutants[name]
        tests = self._subject.tests_of(mutant)
        if tests not in self._workshops:
            folder = self._folder / str(len(self._workshops))
            folder.mkdir()
            self._workshops[tests] = Workshop(folder, tests)
        outcome = self._workshops[tests].outcome(mutant)
        survives = {} if outcome.killed_by else {"difference": mutant.difference}
        return {**asdict(outcome), **survives}


def unexplained(results):
    """Return the survivors without a reason."""
    known = explanations()
    return [r for r in results if r["killed_by"] is None and r["case"] not in known]


def table(results):
    """Return counts by module, and all survivors with their differences and reasons."""
    known = explanations()
    lines = ["| module | mutants | noticed by a test | survive |", "|---|---|---|---|"]
    modules = [result["case"].split(" ", 1)[0] for result in results]
    survivors = [result for result in results if result["killed_by"] is None]
    for module in sorted(set(modules)):
        alive = sum(result["case"].startswith(f"{module} ") for result in survivors)
        count = modules.count(module)
        lines.append(f"| {module} | {count} | {count - alive} | {alive} |")
    lines.append(
        f"| all | {len(results)} | {len(results) - len(survivors)} | {len(survivors)}, "
        f"{len(unexplained(results))} of them unexplained |"
    )
    for result in survivors:
        reason = known.get(result["case"], "**not explained**")
        lines += ["", f"`{result['case']}`: {reason}", "", "```diff"]
        lines += [*result["difference"].splitlines()[2:], "```"]
    seconds = sum(result["cpu_s"] for result in results)
    lines += ["", f"{seconds / 60:.0f} minutes of the processor's time."]
    return "\n".join(lines)


def run_on_mutants(name, subject):
    """Run a campaign on a subject's mutants; end with an error if a survivor is not explained."""
    found = []

    def judged(results):
        found.extend(unexplained(results))
        return table(results)

    with tempfile.TemporaryDirectory() as folder:
        run_campaign(name, list(subject.mutants), Examination(subject, Path(folder)), judged)
    if found:
        sys.exit(f"{len(found)} survivors are not explained in {EXPLAINED.relative_to(ROOT)}")


if __name__ == "__main__":
    run_on_mutants("mutants", CORE)
