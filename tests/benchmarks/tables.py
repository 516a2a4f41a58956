"""Tables in Markdown, and what stands in them."""

import numpy as np


def table_head(names):
    """Return how a table with such columns begins, as in `one | other`."""
    return f"| {names} |\n|{'---|' * (1 + names.count(' | '))}"


def table_row(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def spread(errors):
    """Return the median and the 90th percentile."""
    return f"{np.median(errors):.1%}", f"{np.quantile(errors, 0.9):.1%}"
