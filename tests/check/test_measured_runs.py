"""Tier 2 on real devices: a project that replaces its placement by a worse one."""

from pathlib import Path

import pytest

from placement_advisor.check.check_models import CheckOptions, check_models
from placement_advisor.check.problems import ProblemCode, Status
from placement_advisor.check.project_files import read_config

MODEL = Path(__file__).parents[1] / "tf" / "models" / "two_tower.py"
SETTINGS = """
[tool.advisor]
hardware = "2xV100-NVLink"
[[tool.advisor.models]]
path = "two_tower.py"
placement = "{placement}"
"""


class Silent:
    def working(self, what, done, total, candidate=""): ...

    def note(self, what): ...


def checked(project, placement, options):
    config = project / "pyproject.toml"
    config.write_text(SETTINGS.format(placement=placement))
    (result,) = check_models(read_config(config), options, Silent()).results
    return result


@pytest.mark.slow
def test_a_placement_that_was_replaced_by_a_worse_one_is_measured_to_be_slower(tmp_path):
    (tmp_path / MODEL.name).write_text(MODEL.read_text())
    checked(tmp_path, "single", CheckOptions(update=True))

    same = checked(tmp_path, "single", CheckOptions(measure=True))
    assert same.status in (Status.PASSED, Status.INCONCLUSIVE)
    assert "against the locked placement" in same.notes[-1]

    worse = checked(tmp_path, "alternating", CheckOptions(measure=True))
    codes = {code for problem in worse.problems for code in problem.codes}
    assert ProblemCode.MEASURED_SLOWER in codes, worse.notes
