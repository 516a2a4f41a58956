"""The step of `advisor doctor --run`."""
