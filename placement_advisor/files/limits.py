"""How large sizes and times from outside may be, so that 64 bits hold whatever is summed of them.

The simulator and the solvers count in 64 bits. A size beyond these limits, or times that add up to
more, are mistakes of units or made up, and are refused where they come in.
"""

# A tensor or variable of 1 PB: the largest machines of 2025 have 10 PB of memory in all.
MAX_BYTES = 10**15
# All tensors and variables of a graph together; 64 devices that each hold all of them fit.
MAX_TOTAL_BYTES = 10**17
# 36 years. What a step takes at most lies below; the simulator's "never" is four times as much.
MAX_NS = 2**60
