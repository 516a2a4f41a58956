"""Searches for the best placement, and for what no placement can beat."""
