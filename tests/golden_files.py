"""Expected outputs that are kept as files."""

import json
from pathlib import Path

from placement_advisor import __version__

GOLDEN = Path(__file__).parent / "report" / "golden"


def golden_text(name):
    """Return the content of a file."""
    return (GOLDEN / name).read_text(encoding="utf-8")


def is_golden(json_text, name):
    """Whether this is the JSON that is expected, but for the last digits of numbers."""
    golden = golden_text(f"{name}.json").replace("@VERSION@", __version__)
    return _in_nine_digits(json_text) == _in_nine_digits(golden)


def _in_nine_digits(text):
    """Return JSON without what another version of a library may add to a number, or to zero."""

    def rounded(number):
        value = float(f"{float(number):.9g}")
        return 0.0 if abs(value) < 1e-12 else value

    return json.dumps(json.loads(text, parse_float=rounded), indent=2, ensure_ascii=False)
