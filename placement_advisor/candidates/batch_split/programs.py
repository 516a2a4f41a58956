"""What the steps are called that a split of the batch adds to those that run."""

from __future__ import annotations

SPLIT = "split"


def share_folder(samples: int) -> str:
    """Return the name of the step at a share of its batch."""
    return f"share-{samples}"
