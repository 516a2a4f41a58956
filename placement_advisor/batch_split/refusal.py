"""Why the batch of a step cannot be split."""

from __future__ import annotations


class BatchSplitError(Exception):
    """The batch of a step cannot be split; the message says why, without naming the step."""
