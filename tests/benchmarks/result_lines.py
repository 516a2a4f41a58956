"""Results of an experiment that may be cut short: lines of JSON, each written once it is known."""

import json


def lines_of(file):
    """Return what a file has; nothing if there is none yet."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add(file, line):
    """Write one more line, and print what of it is short."""
    with file.open("a") as opened:
        opened.write(json.dumps(line) + "\n")
    print({key: value for key, value in line.items() if not isinstance(value, list | dict)})
