"""Changes to documents that keep them documents: values of other types, fields gone, doubled, renamed, nested deep.

Damage to bytes mostly ends at a parser's first token. These changes go past it: the document is taken apart, changed
somewhere, and written again, with spellings that no honest writer has (integers of 5,000 digits, NaN, a key twice).
"""

from __future__ import annotations

import json
import random
from typing import Any


class Raw(str):
    """A value by its spelling, whatever that is."""


class Pairs(list):  # type: ignore[type-arg]
    """An object as its pairs: a key can stand in it twice."""


ANYWHERE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 1.5, -0.0, 2**31, 2**48, 2**63, 2**64, 10**30),
    *("", "x", "a\nb", "\x1b[2J", "\u202ex", "\x00", "é", "0" * 300, "../../x", "sha256:00", "*", "(" * 200),
    *([], {}, [1], ["x"], [[]], {"x": 1}, {"": None}, [None, None]),
    *(Raw("9" * 5_000), Raw("-" + "9" * 30), Raw("1e999"), Raw("1e-400")),
    *(Raw("[" * 3_000 + "]" * 3_000), Raw("[" * 400 + "]" * 400)),
)
IN_JSON = (
    *(Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw('"\\ud800"'), Raw("01"), Raw("'x'"), Raw("[1,]")),
    *(Raw('{"a":' * 3_000 + "1" + "}" * 3_000), Raw('{"a":1,"a":2}')),
)
IN_TOML = (
    *(Raw("nan"), Raw("inf"), Raw("0x" + "f" * 5_000), Raw("0b" + "1" * 90), Raw("1_0"), Raw("[1,]"), Raw("'x'")),
    *(Raw("1979-05-27"), Raw("1979-05-27T07:32:00Z"), Raw("07:32:00"), Raw("{a = " * 3_000 + "1" + "}" * 3_000)),
)


def json_changed(data: bytes, chance: random.Random) -> bytes:
    """A JSON document with one to three values changed; most stay in canonical spelling."""
    value = _changed(json.loads(data), chance, ANYWHERE + IN_JSON)
    return _json(value).encode("utf-8", "surrogatepass")


def lines_changed(data: bytes, chance: random.Random) -> bytes:
    """One or two lines of JSON documents changed, dropped, doubled or moved."""
    lines = data.split(b"\n")
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                lines.insert(at, chance.choice(lines))
            case 1:
                del lines[at]
                lines = lines or [b""]
            case 2:
                lines[at] = _json(chance.choice(ANYWHERE + IN_JSON)).encode()
            case _:
                if lines[at].startswith(b"{") and lines[at].endswith(b"}"):
                    lines[at] = json_changed(lines[at], chance) if _is_json(lines[at]) else lines[at][:-1]
    return b"\n".join(lines)


def toml_changed(data: bytes, chance: random.Random) -> bytes:
    """A TOML document with one to three values changed."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    value = _changed(tomllib.loads(data.decode()), chance, ANYWHERE + IN_TOML)
    pairs = value.items() if isinstance(value, dict) else value if isinstance(value, Pairs) else [("x", value)]
    return "".join(f"{json.dumps(name)} = {_toml(item)}\n" for name, item in pairs).encode("utf-8", "replace")


def _changed(value: Any, chance: random.Random, odd: tuple[Any, ...]) -> Any:
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        value = _at(value, chance.choice(list(_paths(value))), chance, odd)
    return value


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Pairs):
        return []  # it is left as it is, and so is what it holds
    return list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    for name, item in _items(value):
        yield from _paths(item, (*path, name))


def _at(value: Any, path: tuple[Any, ...], chance: random.Random, odd: tuple[Any, ...]) -> Any:
    """`value` with what lies at a path changed."""
    if not path:
        return _other(value, chance, odd)
    name, rest = path[0], path[1:]
    items = dict(_items(value))
    if rest or chance.random() < 0.6:
        items[name] = _at(items[name], rest, chance, odd)
    else:
        match chance.randrange(4):
            case 0:
                del items[name]
            case 1 if isinstance(value, dict):
                return Pairs([*items.items(), (name, items[name])])
            case 1:
                return [*items.values(), items[name]]
            case 2 if isinstance(value, dict):
                other = chance.choice((*items, "", "x", "\x1b[2J", "__class__", "0" * 300))
                return {other if key == name else key: item for key, item in items.items()}
            case _:
                items[name] = items[chance.choice(list(items))]
    return items if isinstance(value, dict) else list(items.values())


def _other(value: Any, chance: random.Random, odd: tuple[Any, ...]) -> Any:
    """Another value in the place of one: near it, or far from it."""
    if isinstance(value, Pairs):
        return chance.choice(odd)
    match chance.randrange(6):
        case 0 if isinstance(value, str) and value:
            at = chance.randrange(len(value))
            middle = chance.choice(("", "x", "\n", "\x7f", "0", "[", ")", ",", "é", value[at] * 2))
            return value[:at] + middle + value[at + 1 :]
        case 0 if isinstance(value, int):
            return value + chance.choice((-1, 1, 2**31, -(2**63), 2**64))
        case 1 if isinstance(value, list) and value:
            return value * chance.choice((2, 50))
        case 2:
            return chance.choice(([value], {"x": value}, str(value)))
        case 3 if isinstance(value, list) and len(value) > 1:
            return chance.sample(value, len(value))
        case _:
            return chance.choice(odd)


def _json(value: Any) -> str:
    """Canonical but for what is raw, doubled or no JSON."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{_json(item)}" for n, item in value) + "}"
    if isinstance(value, dict):
        return _json(Pairs(sorted(value.items())))
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _toml(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, (dict, Pairs)):
        pairs = value.items() if isinstance(value, dict) else value
        return "{" + ", ".join(f"{json.dumps(n)} = {_toml(item)}" for n, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, int, float, str)):
        return json.dumps(value)
    return "{}" if value is None else value.isoformat()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
