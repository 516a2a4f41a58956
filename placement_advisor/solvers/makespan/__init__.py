"""Searches for the placement and timetable of least makespan in the delay model."""
