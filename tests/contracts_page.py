"""The tables of docs/reference/contracts.md, made of the types of the contracts by `make docs`.

A comment such as ``<!-- fields of analysis -->`` stands where the tables of a contract go: one for
each type in it, in the order in which they are met. A type that an earlier contract has is not said
twice. The rest of the page is written by hand.
"""

import re
from pathlib import Path

from contract_schemas import TYPES, of_types

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "contracts.md"
_TABLES = re.compile(r"^<!-- fields of (\w+) -->\n(?:(?!#).*\n)*", re.MULTILINE)


def with_tables(page):
    """Return the page with the tables that the types make of it now.

    Raises:
        ValueError: a contract has no place.
    """
    told = []

    def tables(comment):
        (name,) = comment.groups()
        raw = of_types(name)
        parts = [f"<!-- fields of {name} -->\n"]
        for title, fields in _types(raw, TYPES[name].__name__):
            if fields not in told:
                told.append(fields)
                parts.append(f"**{title}**\n\n| | | |\n| --- | --- | --- |\n{''.join(fields)}")
        return "\n".join(parts) + "\n"

    if missing := set(TYPES) - set(_TABLES.findall(page)):
        raise ValueError(f"{PAGE.name} has no place for {', '.join(sorted(missing))}")
    return _TABLES.sub(tables, page)


def _types(raw, title):
    """Yield each type with its rows, from the outermost one inwards."""
    definitions = raw.get("$defs", {})
    waiting, seen = {title: raw}, set()
    while waiting:
        title, schema = next(iter(waiting.items()))
        del waiting[title]
        seen.add(title)
        rows, inner = [], {}
        for field, value in schema["properties"].items():
            kind, mark = _kind(value, definitions, inner), ""
            if field not in schema.get("required", ()):  # It is absent, and never null.
                kind, mark = kind.removesuffix("?"), " *"
            kind = kind if kind != "int" else ""
            meaning = " ".join(value.get("description", "").replace("``", "`").split())
            rows.append(f"| `{field}`{mark} | {kind} | {meaning} |\n")
        waiting = {k: v for k, v in inner.items() if k not in seen} | waiting
        yield title, rows


def _kind(schema, definitions, inner):
    """Return a type in short; ``inner`` takes the types in it that have a table of their own."""
    if "anyOf" in schema:
        kinds = [_kind(each, definitions, inner) for each in schema["anyOf"]]
        kinds = [kind for kind in kinds if kind != "int" or "float" not in kinds]
        return kinds[0] + "?" * ("null" in kinds)
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        found = definitions[name]
        if "properties" in found:
            title = str(found.get("title", name))
            inner[title] = found
            return title
        return _kind(found, definitions, inner)
    if "const" in schema:
        return f"`{str(schema['const']).lower()}`"
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        pair = "2 × " if schema.get("minItems") == schema.get("maxItems") == 2 else ""
        return f"[{pair}{_kind(items, definitions, inner)}]"
    if kind == "object":
        return f"{{{_kind(schema['additionalProperties'], definitions, inner)}}}"
    short = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
    return short.get(str(kind), str(kind))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
