"""Where an analysis writes what TensorBoard shows, within its output folder.

Its tab Profile lists profiles by their paths, without ``plugins/profile``, in alphabetical order,
and shows some 32 letters of each. So they are called by analysis, candidate and kind, and what
stands between is short.
"""

from __future__ import annotations

# What the tab Placement shows.
LOG_FOLDER = "tensorboard"
# What the other tabs show: a folder for each candidate.
RUNS_FOLDER = "runs"
# Which profiles there may be of a candidate: recorded ones, a simulated step, both side by side.
MEASURED, SIMULATED, BOTH = "measured", "simulated", "both"
# In `LOG_FOLDER`: what is shown first.
OVERVIEW = "plugins/placement/analysis.json"
# There too: a file for each candidate, with its timelines and copies.
DETAILS = "plugins/placement/candidates"


def profile_run(candidate: str, which: str) -> str:
    """Return the folder, of the output, with profiles of a candidate, one for each process."""
    return f"{RUNS_FOLDER}/{candidate}/plugins/profile/{which}"
