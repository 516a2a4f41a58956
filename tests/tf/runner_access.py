"""What tests do to a runner from inside its process."""

import numpy as np

from placement_advisor.testbed import STEP
from placement_advisor.tf import runner


def start_from_other_values(variable: str) -> None:
    """Let candidates that are prepared from now on start from another value of a variable."""
    values = runner._programs[STEP].bundle.variables
    values[variable] = np.asarray(values[variable] + 1)


def variable(label: str, name: str) -> np.ndarray:
    """Return a variable's present value."""
    step = runner._ready[label]
    return np.asarray(step._session.run(step._reads[name]))
