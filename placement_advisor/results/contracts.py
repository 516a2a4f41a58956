"""The public contracts by name, each with its JSON Schema."""

import json
from importlib import resources
from typing import Any


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a public contract, by its name in the docs.

    Raises:
        FileNotFoundError: there is no such contract.
    """
    file = resources.files("placement_advisor.results") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema
