"""What commands do unless they are told otherwise."""

# Where analyses go, each into a folder of its own.
OUTPUT = "advisor-out"
DEVICES = 2
STEPS = 4
ROUNDS = 15
# About so many seconds; a demo should not take much longer for a better split.
EFFORT = 5.0
TIME_LIMIT_S = 300.0
