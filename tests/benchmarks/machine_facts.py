"""What figures were measured on, and when."""

import os
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from placement_advisor.machine.this_machine import gpu_count


def machine_facts():
    processors = Path("/proc/cpuinfo").read_text()
    memory = Path("/proc/meminfo").read_text()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _first(r"model name\s*:\s*(.+)", processors),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(_first(r"MemTotal:\s*(\d+)", memory)) * 1024,
        "gpus": gpu_count(),
        "tensorflow": version("tensorflow"),
        "keras": version("keras"),
    }


def _first(pattern, text):
    found = re.search(pattern, text)
    return found.group(1).strip() if found else "unknown"
