"""Simulation of one placed step."""
