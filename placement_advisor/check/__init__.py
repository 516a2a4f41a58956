"""Placements that are kept as they were: what a lock file holds, and what has changed since."""
