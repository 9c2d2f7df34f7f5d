"""``${variable}`` templates with the exact rules of Go's ``os.Expand``.

StorageClasses in the wild were written against those rules, so odd spellings must mean the
same here: ``$name`` works without braces, ``${}`` and an unterminated ``${`` vanish, and a
``$`` before anything else stays.
"""

from collections.abc import Mapping

_SPECIAL = frozenset("*#$@!?-0123456789")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def expand(template: str, variables: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the expanded text and the variables that ``variables`` does not define.

    Unknown variables expand to nothing and are listed in the order of their use.
    """
    text: list[str] = []
    unknown: list[str] = []
    at = 0
    while (dollar := template.find("$", at)) >= 0 and dollar + 1 < len(template):
        text.append(template[at:dollar])
        name, width = _variable(template[dollar + 1 :])
        if name:
            if name not in variables:
                unknown.append(name)
            text.append(variables.get(name, ""))
        elif not width:
            text.append("$")
        at = dollar + 1 + width
    text.append(template[at:])
    return "".join(text), tuple(unknown)


def _variable(rest: str) -> tuple[str, int]:
    """The variable's name at the start of what follows a ``$``, and how much it takes up."""
    if rest[0] == "{":
        return _braced(rest)
    if rest[0] in _SPECIAL:
        return rest[0], 1
    width = next((i for i, char in enumerate(rest) if char not in _WORD), len(rest))
    return rest[:width], width


def _braced(rest: str) -> tuple[str, int]:
    if len(rest) > 2 and rest[1] in _SPECIAL and rest[2] == "}":
        return rest[1], 3
    end = rest.find("}", 1)
    if end < 0:
        return "", 1  # "${" without an end: both characters vanish
    return rest[1:end], end + 1
