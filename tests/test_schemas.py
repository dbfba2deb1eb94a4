import json

import jsonschema
import pytest
from making import GFX942, GFX950, hand_made

from aotkern import schemas
from aotkern.errors import InputError


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_every_schema_is_a_schema(kind):
    schema = schemas.load(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"{kind}.schema.json"
    assert schema["title"].endswith(".")


def objects(schema):
    """Every part of a schema that describes an object with named fields."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_no_schema_lets_an_unknown_field_pass(kind):
    found = list(objects(schemas.load(kind)))
    assert found
    assert all(part["additionalProperties"] is False for part in found)


def test_every_file_is_a_kind():
    from importlib.resources import files

    names = {entry.name for entry in files(schemas).iterdir() if entry.name.endswith(".json")}
    assert names == {f"{kind}.schema.json" for kind in schemas.KINDS}


def test_an_unknown_kind_is_refused():
    with pytest.raises(InputError, match="schema: expected one of audit, bench"):
        schemas.load("../../x")


def test_manifests_fit_their_schema(sample):
    check = jsonschema.Draft202012Validator(schemas.load("manifest"))
    for manifest in (hand_made(), *(sample.build(target).manifest for target in (GFX942, GFX950))):
        check.validate(json.loads(manifest.to_bytes()))


def test_a_manifest_with_another_field_does_not_fit():
    value = json.loads(hand_made().to_bytes())
    value["variants"][0]["launch"]["later"] = 1
    assert not jsonschema.Draft202012Validator(schemas.load("manifest")).is_valid(value)
