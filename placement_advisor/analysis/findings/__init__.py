"""Findings: what to act on, one rule per file."""
