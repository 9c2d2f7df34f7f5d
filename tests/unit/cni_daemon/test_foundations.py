"""Rule sets that outlast a daemon, but not a boot."""

import pathlib

from bitts.net.links import Change
from bitts.net.nftables import Container, Element
from cni_daemon.foundations import Foundations
from cni_daemon.operations import AddElements, ApplyRules, ChangeLink, Once

RULES = Once(
    "rules", (ApplyRules("add table inet x"), AddElements(Container("x", "s"), (Element(b"k"),)))
)


def loaded(folder: pathlib.Path, boot: str = "one") -> Foundations:
    made = Foundations(folder, boot)
    made.load()
    return made


def test_rules_are_known_to_the_next_daemon_of_the_same_boot(tmp_path: pathlib.Path) -> None:
    first = loaded(tmp_path)
    for _ in range(3):
        first.note(RULES)
    assert len((tmp_path / "foundations").read_bytes().splitlines()) == 2, "said once"
    assert loaded(tmp_path).known == {"rules": RULES.operations}
    assert loaded(tmp_path, "two").known == {}
    assert loaded(tmp_path, "two").known == {}


def test_what_is_laid_differently_replaces_what_was(tmp_path: pathlib.Path) -> None:
    first = loaded(tmp_path)
    first.note(RULES)
    first.note(Once("rules", (ApplyRules("add table inet y"),)))
    assert loaded(tmp_path).known == {"rules": (ApplyRules("add table inet y"),)}


def test_links_are_not_remembered(tmp_path: pathlib.Path) -> None:
    first = loaded(tmp_path)
    first.note(Once("bridge", (ChangeLink("host", Change(), 7),)))
    assert loaded(tmp_path).known == {}


def test_a_damaged_file_is_begun_anew(tmp_path: pathlib.Path) -> None:
    first = loaded(tmp_path)
    first.note(RULES)
    path = tmp_path / "foundations"
    path.write_bytes(path.read_bytes()[:-9])
    again = loaded(tmp_path)
    assert again.known == {}
    again.note(RULES)
    assert loaded(tmp_path).known == {"rules": RULES.operations}


def test_a_folder_that_cannot_be_written_keeps_nobody_from_work(tmp_path: pathlib.Path) -> None:
    made = loaded(tmp_path / "missing")
    made.note(RULES)
    assert made.known == {"rules": RULES.operations}
