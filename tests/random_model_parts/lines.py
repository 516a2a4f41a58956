"""Lines of Python that are written from parts."""


def indented(lines, levels=1):
    """Return lines further to the right."""
    return [f"{'    ' * levels}{line}" if line else "" for line in lines]


def one_or(brackets, names):
    """Return a name alone, several in brackets."""
    return names[0] if len(names) == 1 else f"{brackets[0]}{', '.join(names)}{brackets[1]}"
