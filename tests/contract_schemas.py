"""JSON Schemas of the public contracts, made of their types by `make docs`.

A type that is used once stands where it is used; one that is used more often is a definition.
"""

import json
from pathlib import Path

from pydantic import TypeAdapter

from placement_advisor.graph.placement import PlacementFile
from placement_advisor.results import contracts
from placement_advisor.results.analysis import Analysis
from placement_advisor.results.check import Check
from placement_advisor.results.difference import Difference
from placement_advisor.results.doctor import Doctor, Hosts
from placement_advisor.results.machine import Acceptance, Calibration, Hardware
from placement_advisor.results.plans import Balance, Scaling, Search
from placement_advisor.results.steps import Profile, Trace

SCHEMAS = Path(contracts.__file__).parent / "schemas"
_OUTPUTS = (
    *(Acceptance, Analysis, Balance, Difference, Doctor, Hardware, Hosts, Scaling, Search),
    *(Calibration, Check, Profile, Trace),
)
TYPES = {kind.__name__.lower(): kind for kind in _OUTPUTS} | {"placement": PlacementFile}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# What Pydantic writes and no reader needs.
_NAMES = "propertyNames"
_MOST = 2**53  # Beyond it bounds are those of the machine.
_NOISE = ("title", "default", "maxLength")


def schema_text(name):
    """Return the schema of a contract as its file has it."""
    return json.dumps(_schema(of_types(name)), indent=2, ensure_ascii=False) + "\n"


def of_types(name):
    """Return the schema of a contract as Pydantic makes it, each type a definition."""
    kind = TYPES[name]
    config = kind.__pydantic_config__
    kind.__pydantic_config__ = {**config, "use_attribute_docstrings": True}
    try:
        return TypeAdapter(kind).json_schema()
    finally:
        kind.__pydantic_config__ = config


def _schema(raw):
    definitions = raw.pop("$defs", {})
    text = json.dumps([raw, definitions])
    often = {name for name in definitions if text.count(f'"#/$defs/{name}"') > 1}
    # An enumeration is but its values.
    often -= {name for name in often if "enum" in definitions[name]}
    found = {"$schema": _DIALECT, **_plain(raw, definitions, often)}
    kept = {name: _plain(definitions[name], definitions, often) for name in sorted(often)}
    return {**found, "$defs": kept} if kept else found


def _plain(schema, definitions, often):
    """Return a part of a schema without noise, in the few forms that the page knows."""
    if isinstance(schema, list):
        return [_plain(each, definitions, often) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name and name not in often:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _plain({**definitions[name], **beside}, definitions, often)
    found = {key: value for key, value in schema.items() if key not in _NOISE}
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].replace("``", "`").split())
    if found.get("maximum", 0) > _MOST:
        del found["maximum"]
    for key in ("properties", "items", "additionalProperties", "prefixItems", "anyOf", _NAMES):
        if key == "properties" and key in found:
            required = found.get("required", [])
            fields = found[key].items()
            found[key] = {k: _value(v, k in required, definitions, often) for k, v in fields}
            found["additionalProperties"] = False
        elif key in found:
            found[key] = _plain(found[key], definitions, often)
    if "enum" not in found.get(_NAMES, {}):
        found.pop(_NAMES, None)
    if "prefixItems" in found:
        found["items"] = found.pop("prefixItems")[0]
    return _merged(found)


def _value(schema, is_required, definitions, often):
    if not is_required:  # It is absent then, never null.
        first, *_ = schema.get("anyOf", [schema])
        schema = {**{k: v for k, v in schema.items() if k != "anyOf"}, **first}
    return _plain(schema, definitions, often)


def _merged(schema):
    """Return a choice between something and null as one type that may be null."""
    choices = schema.pop("anyOf", None)
    if choices is None:
        return schema
    if [each.get("type") for each in choices[:2]] == ["integer", "number"]:
        choices = choices[1:]  # Which has the first one.
    first, *null = choices
    if not null:
        return {**schema, **first}
    assert null == [{"type": "null"}], "nothing else may be one of several"
    if "$ref" in first:
        return {**schema, "anyOf": choices}
    merged = {**first, **schema, "type": [first["type"], "null"]}
    if "enum" in merged:
        merged["enum"] = [*merged["enum"], None]
    return merged


def main():
    """Write the schemas."""
    for name in TYPES:
        (SCHEMAS / f"{name}.schema.json").write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
