"""`advisor calibrate`: testbed -> its figures, kept for later analyses."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING

from placement_advisor.analysis.hosts import HostOptions, connect
from placement_advisor.cost.links import CalibrationSummary, calibrated_cluster, with_peaks
from placement_advisor.files.output import scratch_folder
from placement_advisor.machine.calibration import calibration_fingerprint
from placement_advisor.machine.testbed_plan import TestbedKind, plan_here
from placement_advisor.processes.children import preload
from placement_advisor.testbed.cost_measurement import calibration_of, calibration_path
from placement_advisor.testbed.testbed import Testbed

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.testbed.benchmark import ProgressReporter


def calibrate(
    testbed: TestbedKind | None,
    devices: int,
    hosts: HostOptions | None,
    cluster_file: Path | None,
    open_ports: bool,
    watcher: ProgressReporter,
) -> CalibrationSummary:
    """Measure a testbed anew, that of ``hosts`` if there are any, and keep what was found.

    ``cluster_file`` is where its cluster will be written, if anywhere.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        site = None
        if hosts is None:
            plan = plan_here(testbed, devices, open_ports=open_ports, note=watcher.note)
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        if hosts is not None:
            connected = connect(hosts, stack, watcher)
            plan, site = connected.plan, connected.site(scratch, stack)
        running = Testbed(plan, scratch=scratch, site=site)
        stack.callback(running.close)
        watcher.working("starting devices", 0, 1)
        running.start()
        calibration = calibration_of(running, watcher, anew=True)
        running.close()
        cluster = calibrated_cluster(
            plan.devices, calibration, launch_overhead_ns=calibration.op_ns
        )
        cluster = with_peaks(cluster, calibration)
    kept_in = calibration_path(plan, calibration)
    return CalibrationSummary(
        testbed=plan.kind.value,
        description=plan.description,
        tensorflow_version=version("tensorflow"),
        fingerprint=calibration_fingerprint(plan),
        calibration=calibration,
        cluster=cluster,
        kept_in=None if kept_in is None else str(kept_in),
        cluster_file=None if cluster_file is None else str(cluster_file),
        warnings=plan.warnings,
        hosts=plan.hosts,
        link=plan.link,
    )
