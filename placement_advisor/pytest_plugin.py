"""The pytest fixture `placement_check`: the check of a configured model as a test.

pytest loads this module in every project of an environment in which the package is installed, so
nothing but pytest, which is there already, is imported until a test asks for a check. A test passes
or fails: what could not be checked fails as well, and nothing is ever skipped.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def placement_check(
    pytestconfig: pytest.Config,
) -> Callable[[str | os.PathLike[str]], None]:
    """Fail the test unless a model is as placements.lock.json has it.

    Called as in ``placement_check("models/ranker.py")``. The model is one of `[tool.advisor]`, with
    or without :NAME, in the pyproject.toml of pytest's rootdir, or of the next folder above.
    """

    def check(model: str | os.PathLike[str]) -> None:
        from placement_advisor.errors import AdvisorError

        try:
            failures = list(_failures(pytestconfig.rootpath, os.fspath(model)))
        except AdvisorError as error:
            failures = [error.message + (f"\nhint: {error.hint}" if error.hint else "")]
        if failures:
            pytest.fail("\n\n".join(failures), pytrace=False)

    return check


def _failures(root: Path, model: str) -> Iterator[str]:
    """Return all there is to say of each model of that name that does not pass.

    Raises:
        AdvisorError: nothing can be checked, or no such model is configured.
    """
    from placement_advisor.check.check_models import CheckOptions, check_models
    from placement_advisor.check.lock_file import find_config, read_config
    from placement_advisor.check.problem_codes import Status
    from placement_advisor.report.check_report import explanation, model_reports

    config = read_config(find_config(root))
    for report in model_reports(check_models(config, CheckOptions(only=(model,)), _Notes())):
        if report.status is not Status.PASSED:
            yield "\n".join([f"{report.model} ({report.place})", *explanation(report)])
        else:
            for note in report.notes:
                print(f"{report.model}: {note}", file=sys.stderr)


class _Notes:
    """Leaves notes where pytest captures them."""

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Say nothing."""

    def note(self, what: str) -> None:
        """Print it."""
        print(what, file=sys.stderr)
