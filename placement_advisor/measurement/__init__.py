"""What was measured, and the statistics that are allowed to speak about it."""
