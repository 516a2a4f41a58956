"""The tables of docs/contracts.md, made of the JSON Schemas by `make docs`.

A comment such as ``<!-- analysis: model, testbed -->`` stands above each table: the schema, and
which of its fields the table has, with all that they hold. A field that several comments name
stands in the table of the longest name. Prose and examples of the page are written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.results.contracts import SCHEMA_NAMES, load_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "contracts.md"
_HEAD = "| Field | Type | Meaning |\n| --- | --- | --- |\n"
_TABLE = re.compile(r"^<!-- (\w+): (.+) -->\n\n(?:\|.*\n)*", re.MULTILINE)


class Field(NamedTuple):
    path: str
    kind: str
    meaning: str


def fields_of(name: str) -> list[Field]:
    """Return every field of a schema, then those of its `$defs`, such as `sum.amount`."""
    schema = load_schema(name)
    definitions = schema.get("$defs", {})
    fields = list(_fields(schema, definitions, ""))
    for definition, content in definitions.items():
        fields += _fields(content, definitions, f"{definition}.")
    return fields


def _fields(schema: dict[str, Any], definitions: dict[str, Any], prefix: str) -> Iterator[Field]:
    for name, content in schema["properties"].items():
        kind = _kind(content, definitions)
        if name not in schema.get("required", ()):
            kind += ", may be absent"
        yield Field(prefix + name, kind, content.get("description", ""))
        for inner, mark in ((content, "."), (_items(content), "[]."), (_values(content), ".*.")):
            if "properties" in inner:
                yield from _fields(inner, definitions, f"{prefix}{name}{mark}")


def _items(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("items", {})


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a map's values; empty if the schema is of no map."""
    return schema.get("additionalProperties") or {}


def _kind(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return f"{_kind(schema['anyOf'][0], definitions)} or null"
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"*{name}* or null" if "null" in definitions[name]["type"] else f"*{name}*"
    if "const" in schema:
        return f"always {str(schema['const']).lower()}"
    if "enum" in schema:
        values = [
            f"`{value}`" if isinstance(value, str) else str(value) for value in schema["enum"]
        ]
        return " · ".join(values).replace(" · None", " or null")
    kind, *null = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if items := _items(schema):
        exactly = "2 " if schema.get("minItems") == schema.get("maxItems") == 2 else ""
        kind = f"list of {exactly}{_plural(items, definitions)}"
    elif values := _values(schema):
        kind = f"map to {_plural(values, definitions)}"
    return f"{kind} or null" if null else kind


def _plural(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    first, *rest = _kind(schema, definitions).split(" ")
    return " ".join([f"{first}s", *rest])


def with_tables(page: str) -> str:
    """Return the page with every table as the schemas have it now.

    Raises:
        ValueError: a field is in no table.
    """
    names: dict[str, list[str]] = {schema: [] for schema in SCHEMA_NAMES}
    for schema, listed in _TABLE.findall(page):
        names[schema] += listed.split(", ")
    rows: dict[tuple[str, str], list[str]] = {}
    for schema in SCHEMA_NAMES:
        for path, kind, meaning in fields_of(schema):
            homes = [name for name in names[schema] if _holds(name, path)]
            if not homes:
                raise ValueError(f"{PAGE.name} has no table for {path} of {schema}")
            home = max(homes, key=len)
            rows.setdefault((schema, home), []).append(f"| `{path}` | {kind} | {meaning} |\n")

    def table(comment: re.Match[str]) -> str:
        schema, listed = comment.groups()
        found = "".join(row for name in listed.split(", ") for row in rows[schema, name])
        return f"<!-- {schema}: {listed} -->\n\n{_HEAD}{found}"

    return _TABLE.sub(table, page)


def _holds(name: str, path: str) -> bool:
    """Tell whether a table of that name has the field: `*` has all."""
    return name == "*" or path == name or path.startswith((f"{name}.", f"{name}[]."))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
