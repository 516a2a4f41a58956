"""What candidates run on in an analysis, and the user's own step beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.families import PER_DEVICE
from placement_advisor.testbed.benchmark import Benchmark
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.answers import TracedSplit

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.subject import Subject
    from placement_advisor.processes.children import Child
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.testbed.testbed import ProcessLauncher


@dataclass(frozen=True, slots=True, kw_only=True)
class Apparatus:
    """A testbed with a trial on it, and the loader, which has the user's own step.

    ``mirrored`` is what a mirrored step runs on, None if there is none to run. ``bundles`` is the
    folder of what is needed to run the step, with one in it for each split of its batch.
    """

    testbed: Testbed
    trial: Benchmark
    mirrored: MirroredTestbed | None
    loader: Child
    bundles: Path

    def close(self) -> None:
        """End all processes but the loader."""
        if self.mirrored is not None:
            self.mirrored.close()
        self.testbed.close()


def set_up(
    subject: Subject,
    loader: Child,
    bundles: Path,
    scratch: Path,
    watcher: ProgressReporter,
    site: ProcessLauncher | None,
) -> Apparatus:
    """Return what the subject runs on, on a site or this machine; no process has started yet."""
    testbed = Testbed(subject.plan, scratch=scratch, site=site)
    testbed.add_program(STEP, bundles, subject.graph)
    trial = Benchmark(
        testbed,
        steps=subject.options.steps,
        watcher=watcher,
        line_of=subject.traced.update_lines(),
        joining=subject.options.refine,
    )
    mirrored = None
    split = subject.splits.get(PER_DEVICE)
    is_wanted = MIRRORED in subject.options.families
    if is_wanted and isinstance(split, TracedSplit) and MIRRORED in split.graphs:
        mirrored = MirroredTestbed(
            testbed,
            subject.options.source,
            bundles,
            subject.traced.created,
            captured=subject.traced.captured,
            program=PER_DEVICE[0],
            draws=split.draws,
            statistics=split.statistics,
        )
    return Apparatus(
        testbed=testbed, trial=trial, mirrored=mirrored, loader=loader, bundles=bundles
    )
