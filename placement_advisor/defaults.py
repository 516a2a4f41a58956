"""What commands do unless they are told otherwise."""

# Where analyses go, each into a folder of its own.
OUTPUT = "advisor-out"
# What `advisor check` holds placements to.
LOCK_FILE = "placements.lock.json"
DEVICES = 2
# The candidate that others are compared with: everything on one device.
BASELINE = "single"
# The candidate that the user's own `tf.device` scopes make; what a check holds a model to.
AS_WRITTEN = "as-written"
# Judgement. A turn of four steps is short beside the seconds for which a machine is slow, so that
# all candidates of a round meet the same machine, and long beside what a change of candidate costs.
STEPS = 4
# As few as tell a seventh from nothing among seven candidates where rounds differ by 8 %
# (`make campaign-verdict-errors`); more are added while they do not.
ROUNDS = 15
# Half as many again as sufficed for intervals that were too narrow: what is in doubt then is nearer
# to the threshold than rounds can tell (`make campaign-verdict-errors`).
MAX_ROUNDS = 90
# Past this, rounds that nobody asked for by number stop once there are enough for an interval: a
# demo must not take an hour. By judgement.
TIMING_BUDGET_S = 90.0
# A split brings a second device to buy, feed and debug: under 3 % it is not worth its trouble.
# Judgement; whoever thinks otherwise reads the interval.
WORTHWHILE_RATIO = 0.97
# The same as a speed-up, which is what texts give with the sign ×.
WORTHWHILE_SPEEDUP = 1 / WORTHWHILE_RATIO
# Candidates that may join once others have run. Judgement: each of them makes an analysis longer by
# a search, its preparation, and a turn in each round.
REFINE = 2
# For each of them, a search that goes on from what all others found, so that less of it does.
REFINE_EFFORT = 2.0
# About so many seconds; a demo should not take much longer for a better split.
EFFORT = 5.0
QUICK_EFFORT = 0.2
# For loading and for tracing each. Judgement: three times the slowest trace of
# docs/reference/figures.md, an unrolled LSTM of 210,000 ops.
TIME_LIMIT_S = 300.0
CAPTURE_TIMEOUT_S = 600.0
# What runs a command on another host.
LAUNCH = "ssh {host}"
# Of a training, timed each way. Judgement: ten pairs of turns, which have an interval, of two steps
# each.
TRIAL_STEPS = 20
