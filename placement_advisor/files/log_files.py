"""Where an analysis writes what TensorBoard shows, within its output folder.

A candidate is a run of TensorBoard: a folder with its scalars and its profiles. TensorBoard lists
profiles by their paths in alphabetical order, and so an analysis, and in it a candidate, stays
together.
"""

from __future__ import annotations

# What TensorBoard is pointed to; the others are folders and files of it.
LOG_FOLDER = "tensorboard"
# Which profiles there may be of a candidate: recorded ones, a simulated step, both side by side.
MEASURED, SIMULATED, BOTH = "measured", "simulated", "both"
# What the tab Placement shows first.
OVERVIEW = "plugins/placement/analysis.json"
# A file for each candidate, with its timelines and copies.
DETAILS = "plugins/placement/candidates"


def profile_run(candidate: str, which: str) -> str:
    """Return the folder with profiles of a candidate, one for each process."""
    return f"{candidate}/plugins/profile/{which}"
