"""Proposals for placements, one family per module."""
