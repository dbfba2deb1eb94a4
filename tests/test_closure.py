import pytest

from aotkern.closure import normalised


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # one", "x = 1"),
        ("x = 1\n\n\ny = 2", "x = 1\ny = 2"),
        ('x = "# no comment"  # one', 'x = "# no comment"'),
        ("f(1,\n  # inside\n  2)", "f(1,\n  2)"),
        ('x = """a\n\n# text  \nb"""', 'x = """a\n\n# text  \nb"""'),
        ('x = "\x0c"\ny = 1  # one', 'x = "\x0c"\ny = 1'),
        ('x = "\u2028"\ny = 1  # one', 'x = "\u2028"\ny = 1'),
    ],
    ids=range(7),
)
def test_normalised_text(before, after):
    assert normalised(before) == after
