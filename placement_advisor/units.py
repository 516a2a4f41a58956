"""Text from integer nanoseconds and bytes, sizes and shares from text: the only place for units."""

import re
from math import isfinite

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"))
_BYTE_STEPS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
# Nobody counts more than so many seconds one by one, nor names more than so many of a unit.
_EXACT_S, _ROUGH_S, _MANY_S = 20, 5, 100
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-zA-Z]*)")
_PERCENTAGE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*%")
_BYTE_UNITS: dict[str, int] = {
    **dict.fromkeys(("", "b"), 1),
    **{prefix + "b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{prefix + "ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_FLOP_STEPS = ((10**12, "Tflop"), (10**9, "Gflop"), (10**6, "Mflop"), (10**3, "kflop"))


def format_ns(time_ns: float | None) -> str:
    """Return a time with three significant digits, ``?`` if unknown.

    >>> format_ns(41_234_000), format_ns(950), format_ns(None)
    ('41.2 ms', '950 ns', '?')
    """
    return _scaled(time_ns, _TIME_STEPS, "ns")


def format_duration(seconds: float) -> str:
    """Return roughly how long something takes, as one would say it.

    >>> [format_duration(s) for s in (0.2, 7.4, 42, 118, 9_000)]
    ['1 s', '7 s', '40 s', '2 min', '2.5 h']
    """
    if seconds < _EXACT_S:
        return f"{max(1, round(seconds))} s"
    if seconds < _MANY_S:
        return f"{round(seconds / _ROUGH_S) * _ROUGH_S} s"
    if seconds < _MANY_S * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def time_unit(time_ns: int) -> tuple[int, str]:
    """Return the largest unit of which a time has one: its length in ns, and its name.

    >>> time_unit(41_234_000), time_unit(950)
    ((1000000, 'ms'), (1, 'ns'))
    """
    return next((step for step in _TIME_STEPS if time_ns >= step[0]), (1, "ns"))


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "table"), counted(1_200, "op")
    ('1 table', '1,200 ops')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def copies_text(count: int) -> str:
    """Return a number of copies in words.

    >>> copies_text(0), copies_text(1), copies_text(19)
    ('no copies', '1 copy', '19 copies')
    """
    return "no copies" if not count else "1 copy" if count == 1 else f"{count} copies"


def format_bytes(size_bytes: float | None, *, is_floor: bool = False) -> str:
    """Return a size in decimal units with three significant digits, ``?`` if unknown.

    With ``is_floor``, some of what it sums up is unknown and comes on top.

    >>> format_bytes(81_000_000), format_bytes(12), format_bytes(None)
    ('81.0 MB', '12 B', '?')
    >>> format_bytes(12, is_floor=True), format_bytes(None, is_floor=True)
    ('≥ 12 B', '?')
    """
    text = _scaled(size_bytes, _BYTE_STEPS, "B")
    return f"≥ {text}" if is_floor and size_bytes is not None else text


def parse_bytes(text: str) -> int:
    """Return the bytes of a size as people write it; a number alone is in bytes.

    >>> parse_bytes("16 GB"), parse_bytes("1.5GiB"), parse_bytes("800")
    (16000000000, 1610612736, 800)

    Raises:
        ValueError: it is none, or negative.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found["unit"].lower() not in _BYTE_UNITS or not _is_finite(found):
        raise ValueError(f"{text!r} is no size; write it as in 16 GB or 800 MiB")
    return round(float(found["number"]) * _BYTE_UNITS[found["unit"].lower()])


def parse_share(text: str) -> float:
    """Return the share that a percentage means.

    >>> parse_share("5%"), parse_share("12.5 %")
    (0.05, 0.125)

    Raises:
        ValueError: it is none, or negative.
    """
    found = _PERCENTAGE.fullmatch(text.strip())
    if found is None or not _is_finite(found):
        raise ValueError(f"{text!r} is no percentage; write it as in 5%")
    return float(found["number"]) / 100


def format_flops(flops: float | None) -> str:
    """Return a number of floating-point operations with three significant digits.

    >>> format_flops(81_200_000), format_flops(12), format_flops(None)
    ('81.2 Mflop', '12 flop', '?')
    """
    return _scaled(flops, _FLOP_STEPS, "flop")


def format_bandwidth(bytes_per_s: float | None) -> str:
    """Return a bandwidth.

    >>> format_bandwidth(7_600_000_000)
    '7.60 GB/s'
    """
    return "?" if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def format_share(share: float | None) -> str:
    """Return a share as a whole percentage.

    >>> format_share(0.204)
    '20 %'
    """
    return "?" if share is None else f"{share * 100:.0f} %"


def _is_finite(found: re.Match[str]) -> bool:
    """Whether the number is none of hundreds of digits, which would be infinite."""
    return isfinite(float(found["number"]))


def _scaled(amount: float | None, steps: tuple[tuple[int, str], ...], smallest: str) -> str:
    """Return an amount in the largest of its units of which there is one."""
    if amount is None:
        return "?"
    for size, unit in steps:
        value = _rounded(amount / size)
        if abs(value) >= 1:
            return f"{_three_digits(value)} {unit}"
    return f"{amount:.0f} {smallest}"


def _rounded(value: float) -> float:
    """Round to three significant digits; the unit is chosen after that, so 999 999 ns is 1 ms."""
    return float(f"{value:.3g}")


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    hundred, ten = 100, 10
    digits = 0 if magnitude >= hundred else 1 if magnitude >= ten else 2
    return f"{value:.{digits}f}"
