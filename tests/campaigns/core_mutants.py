"""Do tests notice a small mistake in what simulates, prices, proposes, compares and judges?"""

from mutants import Area, Subject, run_on_mutants

CORE = Subject(
    areas=(
        Area(modules=("graph/*.py",), tests=("tests/graph",)),
        Area(modules=("simulator/*.py",), tests=("tests/simulator",)),
        Area(modules=("cost/*.py",), tests=("tests/cost",)),
        Area(modules=("candidates/**/*.py",), tests=("tests/candidates",)),
        Area(
            modules=(
                "measurement/*.py",
                "analysis/verdict.py",
                "check/check_step.py",
                "check/causes.py",
                "check/causes.py",
                "check/causes.py",
            ),
            tests=(
                "tests/measurement",
                "tests/analysis/test_recommend.py",
                "tests/check/test_judge.py",
            ),
        ),
        Area(
            modules=("solvers/step_search.py", "solvers/step/*.py"),
            tests=("tests/solvers/test_latency.py", "tests/solvers/test_local_search.py"),
        ),
        Area(
            modules=("profile/steps.py", "profile/totals.py", "profile/timeline/*.py"),
            tests=("tests/profile",),
        ),
    ),
    count=300,
    seed=21,
)


if __name__ == "__main__":
    run_on_mutants("core_mutants", CORE)
