"""The tree of commands, the README against it, and the ways out that are none of the three verdicts."""

import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from aotkern import cli
from aotkern.cli.commands import COMMANDS
from aotkern.cli.commands import aotkern as root

README = Path(__file__).parents[2] / "README.md"


def walk(command, *names):
    """Every command with its names."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), *names, name)


EVERY = dict(walk(root))


def options(names):
    return {text for parameter in EVERY[names].params for text in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("names", EVERY, ids=lambda names: " ".join(names) or "aotkern")
def test_every_command_explains_itself(aotkern, names):
    answer = aotkern(*names, "--help")
    assert answer.code == 0
    assert answer.out.startswith(" ".join(("Usage: aotkern", *names)))
    assert EVERY[names].help


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_overview_is_about_that_command(aotkern, name):
    assert COMMANDS[name][1] in " ".join(aotkern("--help").out.split())


# Makes a pair of key files for a person who typed a passphrase; its outcome is the files.
FOR_PEOPLE = {("keygen",)}
LEAVES = {names for names, command in EVERY.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("names", sorted(LEAVES - FOR_PEOPLE))
def test_every_command_speaks_to_machines(names):
    assert "--json" in options(names)


def shown(text):
    """The aotkern commands in the `sh` blocks of a document, as words."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for start, word in enumerate(words):
                if Path(word).name == "aotkern":
                    end = next((i for i, w in enumerate(words) if i > start and w in ("|", "&&", ";", "||", ">")), None)
                    yield words[start + 1 : end]


def complaints(words):
    """What is wrong with one command line, by the tree of commands."""
    names = ()
    while words and (*names, words[0]) in EVERY:
        names, words = (*names, words[0]), words[1:]
    if isinstance(EVERY[names], click.Group):
        if [word for word in words if not word.startswith("-")]:
            yield f"no command {' '.join((*names, *words))}"
        return
    known = options(names) | {"--help", "-h"}
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in known and word[:2] not in known:
            yield f"{' '.join(names)} has no option {word}"


@pytest.mark.skipif(not README.exists(), reason="there is no README yet")
def test_what_the_readme_shows_exists():
    commands = list(shown(README.read_text("utf-8")))
    assert commands
    assert [complaint for words in commands for complaint in complaints(words)] == []


def test_a_wrong_line_in_a_readme_would_be_seen():
    text = (
        "$ aotkern build x.py -t gfx942 \\\n  --out d | tee log\n.venv/bin/aotkern bild\naotkern show b --varient x\n"
    )
    text = f"```sh\n{text}```\n"
    commands = list(shown(text))
    assert commands == [["build", "x.py", "-t", "gfx942", "--out", "d"], ["bild"], ["show", "b", "--varient", "x"]]
    assert [list(complaints(words)) for words in commands] == [
        [],
        ["no command bild"],
        ["show has no option --varient"],
    ]


def test_the_version_is_told(aotkern):
    from aotkern import __version__

    assert aotkern("--version").out == f"aotkern, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("verify",), ("audit", "nonsense"), ("show", "a", "b")], ids=" ".join
)
def test_a_wrong_usage_ends_in_2(aotkern, arguments):
    answer = aotkern(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Error: " in answer.err


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (KeyboardInterrupt(), 130, ""),
        (ZeroDivisionError("a fault"), 2, "ZeroDivisionError: a fault"),
        (MemoryError(), 2, "MemoryError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_no_fault_looks_like_a_verdict(monkeypatch, capsys, raised, code, told):
    def fail(*_):
        raise raised

    monkeypatch.setattr("aotkern.bundle.Bundle.open", fail)
    monkeypatch.setattr(sys, "argv", ["aotkern", "verify", "x"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == code
    assert told in capsys.readouterr().err
