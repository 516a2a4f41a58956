"""Where the user's programs keep what can be had again.

Source: XDG Base Directory Specification.
"""

from __future__ import annotations

import os
from pathlib import Path

# As a folder it holds nothing and takes nothing.
NOWHERE = Path(os.devnull)


def cache_folder() -> Path:
    """Return the user's cache folder; `NOWHERE` without a home, as in a container's user id.

    A relative path is none: it would lead to the current folder, which may be a stranger's.
    """
    at_home = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path's raises without a home
    folder = Path(os.environ.get("XDG_CACHE_HOME") or at_home)
    return folder if folder.is_absolute() else NOWHERE
