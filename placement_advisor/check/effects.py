"""What a change does to a step: by which figures a check fails, and which became better.

Figures count beyond their tolerance; times where they were predicted for the same devices by the
same versions. Budgets count always. What a search found may cost copies and memory, as long as
that takes no longer.

Left out: differences within the tolerances, which may add up over many changes until the lock file
is written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.check.placements import Freedom
from placement_advisor.check.problem import MAX_CULPRITS, Code, Effect
from placement_advisor.check.record import Standing
from placement_advisor.units import NS_PER_US, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from placement_advisor.check.record import Record

# Kernels and buffers of one size come and go as code is written in other words. The edits of
# `tests/check/edits.py` show how much: the 40 harmless ones move the predicted step by 4.0 % at
# most (0.9 % up), a peak by 2.0 % up and by 7.2 % down, and no bytes across; of the harmful ones
# those that make the step slower add 6.2 % and more. So 5 % lies between, with little room: an edit
# that orders a step otherwise may fail by its memory alone. That bytes may grow by 1 % is
# judgement: scalars come and go with what is logged.
BYTES_TOLERANCE = 0.01
MEMORY_TOLERANCE = 0.05
STEP_TOLERANCE = 0.05
_RANKS = (Standing.SINGLE, Standing.CANNOT_TELL, Standing.SPLIT)
_STANDINGS = {
    Standing.SPLIT: "faster than one device",
    Standing.SINGLE: "no faster than one device",
    Standing.CANNOT_TELL: "within doubt of one device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step may cost: budgets in bytes, and by what share its predicted time may grow."""

    max_transfer_bytes: int | None = None
    max_peak_bytes: int | None = None
    max_step_regression: float = STEP_TOLERANCE


def effects(before: Record, after: Record, limits: Limits, freedom: Freedom) -> tuple[Effect, ...]:
    """Return what became worse than it may, the step's time first."""
    slower = tuple(_slower(before, after, limits)) if before.versions == after.versions else ()
    # A search weighs copies and memory against time: without a longer step they are its choice.
    is_choice = freedom is Freedom.SEARCH and before.versions == after.versions
    if is_choice and not any(effect.code is Code.SLOWER for effect in slower):
        return slower
    return (*slower, *_across(before, after), *_memory(before, after))


def improvements(before: Record, after: Record, limits: Limits, freedom: Freedom) -> Iterator[str]:
    """Say what became better by more than its tolerance, and a verdict that changed otherwise."""
    if before.versions == after.versions:
        growth = _growth(before, after)
        if growth < -limits.max_step_regression:
            yield (
                f"better: the predicted step takes {-growth:.1%} less ({_us(before.step_us)} -> "
                f"{_us(after.step_us)})"
            )
        if before.standing is not after.standing and not _fell(before, after, limits):
            yield _verdicts(before, after)
        if freedom is Freedom.SEARCH and growth <= limits.max_step_regression:
            return
    more = after.bytes_across - before.bytes_across
    if more < -BYTES_TOLERANCE * before.bytes_across:
        yield f"better: {signed(more)} across per step"
    if after.copies < before.copies:
        yield f"better: {after.copies - before.copies:+} copies per step"
    for device in after.memory_bytes:
        was, now = before.peak_bytes(device), after.peak_bytes(device)
        if now < (1 - MEMORY_TOLERANCE) * was:
            yield f"better: {device} has a peak of {format_bytes(now)}, not {format_bytes(was)}"


def broken_limits(
    after: Record, limits: Limits, shortages: Mapping[str, str]
) -> tuple[Effect, ...]:
    """Return where the step breaks a budget or needs more memory than there is.

    ``shortages`` say of devices what is missing there.
    """
    found = [
        Effect(code=Code.OUT_OF_MEMORY, what=what, device=device)
        for device, what in shortages.items()
    ]
    budget = limits.max_transfer_bytes
    if budget is not None and after.bytes_across > budget:
        found.append(
            Effect(
                code=Code.OVER_BUDGET,
                what=f"{format_bytes(after.bytes_across)} cross per step, max_transfer_bytes is "
                f"{format_bytes(budget)}",
                size=after.bytes_across - budget,
                culprits=tuple(
                    f"{cut.tensor} {cut.source} -> {cut.target} {format_bytes(cut.size_bytes)}"
                    for cut in after.cuts[:MAX_CULPRITS]
                ),
            )
        )
    memory = limits.max_peak_bytes
    for device in after.memory_bytes if memory is not None else ():
        if after.peak_bytes(device) > (memory or 0):
            held = after.memory_bytes[device]
            most = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:MAX_CULPRITS]
            found.append(
                Effect(
                    code=Code.OVER_BUDGET,
                    what=f"{device} needs {format_bytes(after.peak_bytes(device))} of memory, "
                    f"max_peak_memory is {format_bytes(memory)}",
                    size=after.peak_bytes(device) - (memory or 0),
                    device=device,
                    culprits=tuple(f"{format_bytes(size)} {kind}" for kind, size in most),
                )
            )
    return tuple(found)


def has_grown(effect: Effect, before: Record, after: Record) -> bool:
    """Whether what breaks a limit is more than it was."""
    if effect.device:
        return after.peak_bytes(effect.device) > before.peak_bytes(effect.device)
    return after.bytes_across > before.bytes_across


def is_better(before: Record, after: Record) -> bool:
    """Whether what changed is shown to be for the better, or to cost nothing."""
    if after.copies > before.copies or after.bytes_across > before.bytes_across:
        return False
    if before.versions == after.versions:
        return after.step_us <= before.step_us
    return (after.copies, after.bytes_across) != (before.copies, before.bytes_across)


def signed(size_bytes: int | None) -> str:
    """Return bytes with their sign."""
    if size_bytes is None:
        return "of unknown size"
    return f"{'-' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def _slower(before: Record, after: Record, limits: Limits) -> Iterator[Effect]:
    growth = _growth(before, after)
    if growth > limits.max_step_regression:
        yield Effect(
            code=Code.SLOWER,
            what=f"the predicted step takes {growth:.1%} longer ({_us(before.step_us)} -> "
            f"{_us(after.step_us)}, {limits.max_step_regression:.0%} are allowed)",
            size=growth,
        )
    if _fell(before, after, limits):
        yield Effect(
            code=Code.STANDING,
            what=f"{_verdicts(before, after)}: {_us(after.step_us)} against "
            f"{_us(after.single_step_us)} on one device",
        )


def _across(before: Record, after: Record) -> Iterator[Effect]:
    added = after.copies - before.copies
    if added > 0:
        yield Effect(
            code=Code.COPIES,
            what=f"{added:+} copies per step ({before.copies} -> {after.copies})",
            size=added,
        )
    more = after.bytes_across - before.bytes_across
    if more > BYTES_TOLERANCE * before.bytes_across:
        yield Effect(
            code=Code.BYTES,
            what=f"{signed(more)} across devices per step ({format_bytes(before.bytes_across)} -> "
            f"{format_bytes(after.bytes_across)})",
            size=more,
        )


def _memory(before: Record, after: Record) -> Iterator[Effect]:
    for device in after.memory_bytes:
        was, now = before.peak_bytes(device), after.peak_bytes(device)
        if now > (1 + MEMORY_TOLERANCE) * was:
            more = _held_more(before, after, device)
            most = f", above all {next(iter(more))}" if more else ""
            yield Effect(
                code=Code.MEMORY,
                what=f"{device}: {signed(now - was)} of peak memory ({format_bytes(was)} -> "
                f"{format_bytes(now)}){most}",
                size=now - was,
                device=device,
                culprits=tuple(f"{signed(size)} {kind}" for kind, size in more.items()),
            )


def _held_more(before: Record, after: Record, device: str) -> dict[str, int]:
    """Return what more is held on a device at its peak, the most first."""
    held = before.memory_bytes.get(device, {})
    more = {kind: size - held.get(kind, 0) for kind, size in after.memory_bytes[device].items()}
    ordered = sorted(more.items(), key=lambda item: (-item[1], item[0]))
    return {kind: size for kind, size in ordered if size > 0}


def _growth(before: Record, after: Record) -> float:
    # Rounded, for 1050 / 1000 - 1 is more than 0.05.
    return round(after.step_us / before.step_us - 1, 9) if before.step_us else 0.0


def _fell(before: Record, after: Record, limits: Limits) -> bool:
    """Whether the placement stands worse against one device, by more than a hair."""
    ratio_before = before.step_us / max(1, before.single_step_us)
    ratio_after = after.step_us / max(1, after.single_step_us)
    return (
        _RANKS.index(after.standing) < _RANKS.index(before.standing)
        and ratio_after > (1 + limits.max_step_regression) * ratio_before
    )


def _verdicts(before: Record, after: Record) -> str:
    return (
        f"the placement was predicted to be {_STANDINGS[before.standing]}, now "
        f"{_STANDINGS[after.standing]}"
    )


def _us(time_us: int) -> str:
    return format_ns(time_us * NS_PER_US)
