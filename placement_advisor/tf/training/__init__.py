"""The user's own training where it runs: with its step placed, or some of its steps recorded."""
