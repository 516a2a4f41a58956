"""A launcher that runs the worker here: ``light_worker.py advisor worker --stdio``.

Its children have no TensorFlow, so that they are there at once, and may be called for more. What
else is to be otherwise about it stands in an environment variable, as JSON.
"""

import json
import os
import sys
from pathlib import Path

CHANGES = "LIGHT_WORKER"
MORE = (
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "print"),
    ("math", "factorial"),
    ("_operator", "truediv"),
    ("posix", "_exit"),
    ("posix", "kill"),
    ("placement_advisor.candidates.families", "check_names"),
    ("time", "sleep"),
)


def main():
    from placement_advisor.cli.app import main as advisor
    from placement_advisor.processes import children
    from placement_advisor.remote_hosts import conversation, host_facts, service

    changes = json.loads(os.environ.get(CHANGES, "{}"))
    children._PRELOADED = "light_preload"
    path = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # For the fork server.
    service.CALLABLE |= set(MORE)
    host_facts.__version__ = changes.get("advisor", host_facts.__version__)
    if "tensorflow" in changes:
        host_facts.tensorflow_version = lambda: changes["tensorflow"]
    if "memory_bytes" in changes:
        children.available_memory_bytes = lambda: changes["memory_bytes"]
    if "silence_s" in changes:
        conversation.SILENCE_S = changes["silence_s"]
    print(changes.get("banner", ""), end="", flush=True)
    sys.argv = sys.argv[1:]
    advisor()


if __name__ == "__main__":
    main()
