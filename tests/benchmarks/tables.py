"""Tables in Markdown."""


def table_head(names):
    """Return how a table with such columns begins, as in `one | other`."""
    return f"| {names} |\n|{'---|' * (1 + names.count(' | '))}"


def table_row(*cells):
    return f"| {' | '.join(map(str, cells))} |"
