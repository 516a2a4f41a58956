"""Which lines of a traceback are the user's own."""

from __future__ import annotations

from pathlib import Path

_OURS = Path(__file__).resolve().parents[1]


def is_user_code(file: str, model_file: Path) -> bool:
    """Say whether ``file`` is the model file, or lies in its folder and is no installed package."""
    path = Path(file)
    if not path.is_file() or "site-packages" in path.parts:
        return False
    return path.resolve().is_relative_to(model_file.resolve().parent) and not is_ours(file)


def is_ours(file: str) -> bool:
    """Say whether ``file`` is the advisor's."""
    return Path(file).resolve().is_relative_to(_OURS)
