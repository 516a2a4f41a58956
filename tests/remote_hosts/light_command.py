"""A command whose own children, and those of `localhost`, have no TensorFlow: as `light_worker`."""

import os
import sys
from pathlib import Path

from placement_advisor.remote_hosts import remote_host

HERE = Path(__file__).parent


def main():
    from placement_advisor.cli.app import main as advisor
    from placement_advisor.processes import children

    children._PRELOADED = "light_preload"
    path = (str(HERE), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # For the fork server.
    launched = remote_host.service_command

    def service_command(host, launch):
        if host != remote_host.LOCALHOST:
            return launched(host, launch)
        return [sys.executable, "-P", str(HERE / "light_worker.py"), "advisor", "worker", "--stdio"]

    remote_host.service_command = service_command
    sys.argv[0] = "advisor"
    advisor()


if __name__ == "__main__":
    main()
