"""What the loader's process is called for when the batch of its workload is split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.plan import SPLIT, share_folder
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.tf.answers import TracedShare, TracedSplit
from placement_advisor.tf.split.split_step import (
    split_step,
    split_traces,
    trace_batch_repeated,
    trace_share,
)
from placement_advisor.tf.trace.tracer import traced_step

if TYPE_CHECKING:
    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.trace.bundle import Bundle


def split_workload(samples: tuple[int, ...], folder: str | None) -> TracedSplit | BatchSplitError:
    """Split the batch of the traced workload of this process, or say why that cannot be done.

    Bundles of the split step and of each share go into ``folder``, as `SPLIT` and `share_folder`.
    Without one no step runs.
    """
    try:
        step = split_step(traced_step(), samples, run=folder is not None)
        if folder is not None:
            _save(step.bundle(), Path(folder) / SPLIT)
            for share in step.shares:
                bundle = share.flat.bundle(share.batches())
                _save(bundle, Path(folder) / share_folder(share.loaded.batch_size or 0))
    except BatchSplitError as error:
        return error
    except AdvisorError as error:
        return BatchSplitError(error.message)
    return TracedSplit(
        graphs=step.graphs,
        weak=step.weak,
        samples=samples,
        shares={
            share.loaded.batch_size or 0: TracedShare(graph=share.graph, members=share.members())
            for share in step.shares
        },
        own=step.own,
        draws=step.draws,
        statistics=step.statistics,
    )


def trace_split(samples: tuple[int, ...]) -> SplitTraces | BatchSplitError:
    """Trace the workload of this process at shares of its batch, or say why that cannot be done."""
    try:
        return split_traces(traced_step(), samples)
    except BatchSplitError as error:
        return error
    except AdvisorError as error:
        return BatchSplitError(error.message)


def trace_repeated(times: int) -> OpGraph | BatchSplitError:
    """Trace the workload of this process on its batch several times over, or say why it cannot."""
    try:
        return trace_batch_repeated(traced_step(), times)
    except BatchSplitError as error:
        return error
    except AdvisorError as error:
        return BatchSplitError(error.message)


def trace_shares(sizes: tuple[int, ...], folder: str) -> dict[int, TracedShare] | BatchSplitError:
    """Trace the workload of this process at several batch sizes, or say why that cannot be done.

    A bundle of each goes into ``folder``, as `share_folder`.
    """
    whole = traced_step()
    found = {}
    try:
        for size in sizes:
            share = whole if size == whole.loaded.batch_size else trace_share(whole, 0, size)
            _save(share.flat.bundle(share.batches()), Path(folder) / share_folder(size))
            found[size] = TracedShare(graph=share.graph, members=share.members())
    except BatchSplitError as error:
        return error
    except AdvisorError as error:
        return BatchSplitError(error.message)
    return found


def _save(bundle: Bundle, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    bundle.save(folder)
