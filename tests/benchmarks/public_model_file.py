"""Writes a model of `public_models.py` as a file for the advisor, without TensorFlow here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def public_model_file(model: str, folder: Path) -> Path:
    """Return the path of the file."""
    path = folder / "model.py"
    path.write_text(f"from public_models import compiled\nmodel, dataset = compiled({model!r})\n")
    return path
