"""Tables in Markdown."""


def head(names):
    """Return how a table with such columns begins, as in `one | other`."""
    return f"| {names} |\n|{'---|' * (1 + names.count(' | '))}"


def row(*cells):
    """Return a row of a table."""
    return f"| {' | '.join(map(str, cells))} |"
