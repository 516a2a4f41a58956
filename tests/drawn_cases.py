"""How many cases Hypothesis draws: a fifth in each run of the tests of what it draws at night."""

from hypothesis import settings

# Where a test names no number.
AT_NIGHT = 100


def cases(at_night):
    """Return settings that draw so many cases at night, and by day the share that all tests do."""
    return settings(max_examples=at_night * settings.default.max_examples // AT_NIGHT)
