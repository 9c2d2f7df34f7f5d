import pytest
from bitts.volumes import templates
from hypothesis import given, settings
from hypothesis import strategies as st

VARIABLES = {"pv.name": "vol", "x": "X", "1": "one", "pvc.annotations['a.b/c']": "note"}


@pytest.mark.parametrize(
    ("template", "text", "unknown"),
    [
        ("plain", "plain", ()),
        ("${pv.name}-s", "vol-s", ()),
        ("${x}${x}", "XX", ()),
        ("$x!", "X!", ()),
        ("$x_y", "", ("x_y",)),
        ("${pvc.annotations['a.b/c']}", "note", ()),
        ("${nope}a$gone", "a", ("nope", "gone")),
        ("$1st", "onest", ()),
        ("${1}", "one", ()),
        ("$", "$", ()),
        ("a$", "a$", ()),
        ("$.x", "$.x", ()),
        ("$ x", "$ x", ()),
        ("$$x", "x", ("$",)),
        ("${}b", "b", ()),
        ("${x", "x", ()),
        ("a${", "a", ()),
        ("${1x}", "", ("1x",)),
        ("", "", ()),
    ],
)
def test_expansion_is_that_of_go(template: str, text: str, unknown: tuple[str, ...]) -> None:
    assert templates.expand(template, VARIABLES) == (text, unknown)


@given(st.text(alphabet="$", max_size=5) | st.text(alphabet="${}x1-. a", max_size=20))
@settings(max_examples=200)
def test_no_template_breaks_it_and_text_without_dollars_stays(template: str) -> None:
    text, unknown = templates.expand(template, VARIABLES)
    if "$" not in template:
        assert (text, unknown) == (template, ())
    assert len(text) <= len(template) * 4
