"""Searches for the placement with the shortest simulated step."""
