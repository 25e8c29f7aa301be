"""The OpenAPI document of the API, from the Structs of questions and answers."""

import re
from typing import Any

import msgspec

from vmsonar.fleet.serve.forms import Answer
from vmsonar.fleet.serve.questions import QUESTIONS, Question
from vmsonar.fleet.serve.refusal import Problem

_TEMPLATE = "#/components/schemas/{name}"


def document(version: str) -> dict[str, Any]:
    """The whole document."""
    rows = [question.row for question in QUESTIONS]
    schemas, components = msgspec.json.schema_components([Answer, Problem, *rows], ref_template=_TEMPLATE)
    named = dict(zip(rows, schemas[2:], strict=True))
    paths = {question.path: {"get": _operation(question, named[question.row])} for question in QUESTIONS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "vmsonar", "version": version, "description": "Read-only answers about a fleet."},
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {kind: {"type": "http", "scheme": kind} for kind in ("bearer", "basic")},
        },
    }


def _operation(question: Question, row: dict[str, Any]) -> dict[str, Any]:
    answer = {"allOf": [{"$ref": _TEMPLATE.format(name="Answer")}, {"properties": {"rows": {"items": row}}}]}
    problem = {"$ref": _TEMPLATE.format(name="Problem")}
    refused = {"400": "A parameter that is missing or wrong", "401": "No token, or none that is known",
               "403": "A role that sees nothing", "404": "Nothing of that name that you may see"}  # fmt: skip
    places = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "maxLength": 300}}
        for name in re.findall(r"{(\w+)}", question.path)
    ]
    return {
        "operationId": question.answer.__name__,
        "summary": question.says,
        "parameters": [*places, *_parameters(question)],
        "responses": {
            "200": {"description": "The answer", "content": {"application/json": {"schema": answer}}},
            "304": {"description": "What you have is what there is (If-None-Match)"},
        }
        | {
            code: {"description": says, "content": {"application/json": {"schema": problem}}}
            for code, says in refused.items()
        },
    }


def _parameters(question: Question) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([question.wish], ref_template=_TEMPLATE)
    properties = components[question.wish.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        for name, schema in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out need not be null as well: an address has no null."""
    kept = {name: each for name, each in schema.items() if name != "default" or each is not None}
    if "anyOf" in kept:
        (only,) = [each for each in kept.pop("anyOf") if each != {"type": "null"}]
        kept |= only
    if "enum" in kept:
        kept["enum"] = [each for each in kept["enum"] if each is not None]
    return kept
