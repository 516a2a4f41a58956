"""Where an analysis writes what TensorBoard shows, within its output folder."""

from __future__ import annotations

# What TensorBoard is pointed to; the others are folders and files of it.
LOG_FOLDER = "tensorboard"
# A folder for each run in the tab Profile.
PROFILE_RUNS = "plugins/profile"
# How runs end that hold no recorded profile: a simulated step, and one beside the measured one.
SIMULATED_RUN, COMBINED_RUN = "-simulated", "-both"
# What the tab Placement shows first.
OVERVIEW = "plugins/placement/analysis.json"
# A file for each candidate, with its timelines and copies.
DETAILS = "plugins/placement/candidates"
