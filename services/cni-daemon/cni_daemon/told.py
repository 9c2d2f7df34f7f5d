"""Answers that were given, known by their text: hardly anybody asks what is in them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Told(Mapping[str, object]):  # noqa: PLW1641 - no mapping that can change has a hash
    """A document that is read when somebody looks at it."""

    __slots__ = ("_document", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._document: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Return the document, which nobody may change."""
        if self._document is None:
            self._document = json.loads(self._text)
        return self._document

    def __getitem__(self, key: str) -> object:
        return self.read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __eq__(self, other: object) -> bool:
        return self.read() == (other.read() if isinstance(other, Told) else other)
