"""The public contracts by name, each with its JSON Schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

SCHEMA_NAMES = (
    "analysis",
    "difference",
    "placement",
    "trace",
    "simulation",
    "search",
    "balance",
    "scaling",
    "profile",
    "calibration",
    "doctor",
    "acceptance",
    "hosts",
    "hardware",
    "check",
)


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a public contract, one of `SCHEMA_NAMES`.

    Raises:
        ValueError: no such schema.
    """
    if name not in SCHEMA_NAMES:
        raise ValueError(f"no schema {name!r}; there are {', '.join(SCHEMA_NAMES)}")
    file = resources.files("placement_advisor.results") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema
