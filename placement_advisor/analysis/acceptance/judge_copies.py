"""Holds the copies that a profile shows against those of the known step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.acceptance.finding import Finding, Outcome, judged
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.machine.nvidia import PEER_ACCESS
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.timeline.device_trace import HOST, UNKNOWN_END
from placement_advisor.tf.acceptance.known_step import COPIES, End, copies_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.acceptance.observed import PairRun
    from placement_advisor.measurement.measurement import Span, StepProfile
    from placement_advisor.tf.acceptance.known_step import KnownCopy

_NAMED = 3
_WORDS = {End.NEAR: "there", End.FAR: "back"}
_NO_PAIR = "no two GPUs of one process here"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCopies:
    """What a profile shows of the copies that leave a device for the other one, per step."""

    count: int
    size_bytes: int | None
    size_basis: SizeBasis | None
    over_host: bool


def seen_copies(pair: PairRun, profile: StepProfile, source: End) -> SeenCopies:
    """Return what the profile shows in one direction.

    Without access to a peer's memory a copy goes over the host, in two parts; the first one counts.
    """
    here = pair.device_at[source]
    (there,) = (device for end, device in pair.device_at.items() if end is not source)
    by_ends = {(total.source, total.target): total for total in profile.transfers}
    found = by_ends.get((here, there))
    over_host = found is None and {(here, HOST), (HOST, there)} <= by_ends.keys()
    if over_host:
        found = by_ends[here, HOST]
    if found is None:
        return SeenCopies(count=0, size_bytes=0, size_basis=None, over_host=False)
    return SeenCopies(
        count=found.count,
        size_bytes=found.size_bytes,
        size_basis=found.size_basis,
        over_host=over_host,
    )


def copies(pair: PairRun, profile: StepProfile) -> Finding:
    """Judge how many copies there are in each direction."""
    told, problems = [], []
    for source, word in _WORDS.items():
        seen, planned = seen_copies(pair, profile, source), len(copies_from(source))
        way = " over the host" if seen.over_host else ""
        told.append(f"{word} {seen.count} of {planned}{way}")
        if seen.count != planned:
            problems.append(f"{planned} must go {word}")
    if profile.unseen_copies:
        problems.append(f"not seen: {first_names(profile.unseen_copies, _NAMED)}")
    strange = sum(total.count for total in profile.transfers if total.target == UNKNOWN_END)
    if strange:
        problems.append(f"{strange} of a kind that is not known")
    return judged("copies", ", ".join(told), problems)


def bytes_moved(pair: PairRun, profile: StepProfile) -> Finding:
    """Judge how many bytes go in each direction."""
    told, problems, bases, unknown = [], [], set(), False
    for source, word in _WORDS.items():
        seen = seen_copies(pair, profile, source)
        planned_bytes = sum(copy.size_bytes for copy in copies_from(source))
        bases.add(seen.size_basis)
        if seen.size_bytes is None:
            unknown = True
            told.append(f"{word} ? of {planned_bytes:,}")
            continue
        told.append(f"{word} {seen.size_bytes:,} of {planned_bytes:,}")
        if seen.size_bytes != planned_bytes:
            problems.append(f"{planned_bytes:,} must go {word}")
    finding = ", ".join(told)
    if SizeBasis.SHAPES in bases:
        finding += ", by the shapes in the graph: a profile of a CPU has none"
    if unknown and not problems:
        finding += ": the profile does not give all"
        return Finding(name="bytes", outcome=Outcome.UNKNOWN, finding=finding)
    return judged("bytes", finding, problems)


def order(pair: PairRun, profile: StepProfile) -> Finding:
    """Judge when tensors are made, sent, received and read, in the step of median length."""
    # Either device may be that far from where it is shown.
    slack_ns = 2 * (profile.clock_uncertainty_ns or 0)
    wrong = {copy.producer: list(_out_of_order(copy, profile, slack_ns)) for copy in COPIES}
    problems = [words for found in wrong.values() for words in found]
    if profile.clock_contradiction_ns:
        problems.append("no offsets of the hosts' clocks fit what crossed between them")
    right = sum(not found for found in wrong.values())
    finding = f"{right} of {len(COPIES)} tensors are made, sent, received and read in that order"
    return judged("order", finding, problems)


def _out_of_order(copy: KnownCopy, profile: StepProfile, slack_ns: int) -> Iterator[str]:
    """Yield what is wrong about a tensor on its way."""
    made = _runs(profile, (copy.producer,))
    read = _runs(profile, copy.readers)
    if not made or not read:
        yield f"{copy.producer} is not seen to be made and read"
        return
    made_ns, read_ns = max(s.end_ns for s in made), min(s.start_ns for s in read)
    if read_ns + slack_ns < made_ns:
        yield f"{copy.producer} is read before it is made"
    sent = [s for s in profile.timeline if s.is_copy and copy.producer in s.name]
    if any(span.start_ns + slack_ns < made_ns for span in sent):
        yield f"{copy.producer} is sent before it is made"
    # Where clocks say that it arrived before, readers of profiles let it arrive at once.
    if any(span.end_ns <= span.start_ns for span in sent) and not slack_ns:
        yield f"{copy.producer} arrives when it is sent, or before"
    if any(read_ns + slack_ns < span.end_ns for span in sent):
        yield f"{copy.producer} is read before it arrives"


def _runs(profile: StepProfile, names: tuple[str, ...]) -> list[Span]:
    return [span for span in profile.timeline if not span.is_copy and span.name in names]


def peer_access(pair: PairRun, profile: StepProfile) -> Finding:
    """Judge the way that copies between GPUs take against what the driver says."""
    if pair.gpus is None:
        return Finding(name="peer access", outcome=Outcome.UNKNOWN, finding=_NO_PAIR)
    seen = [seen_copies(pair, profile, source) for source in End]
    ways = {each.over_host for each in seen if each.count}
    words = {True: "over the host", False: "from GPU to GPU"}
    finding = f"copies go {' and '.join(words[way] for way in sorted(ways))}" if ways else ""
    said = pair.gpus.peer_access
    if said is None or not ways:
        lacking = "nvidia-smi topo -p2p r does not say" if said is None else "no copy was seen"
        text = "; ".join(filter(None, (lacking, finding)))
        return Finding(name="peer access", outcome=Outcome.UNKNOWN, finding=text)
    finding += f"; the driver says {said.code}"
    must_go_over_host = said.code != PEER_ACCESS
    problems = [] if ways == {must_go_over_host} else ["these contradict each other"]
    return judged("peer access", finding, problems)


def topology(pair: PairRun) -> Finding:
    """Say what lies between two GPUs."""
    if pair.gpus is None:
        return Finding(name="topology", outcome=Outcome.UNKNOWN, finding=_NO_PAIR)
    found = pair.gpus.topology
    if found is None or found.connection is None:
        code = "" if found is None else f": {found.code}"
        finding = f"nvidia-smi topo -m does not say{code}"
        return Finding(name="topology", outcome=Outcome.UNKNOWN, finding=finding)
    finding = f"{found.code}, {found.connection.value}"
    return Finding(name="topology", outcome=Outcome.OK, finding=finding)
