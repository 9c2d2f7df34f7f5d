"""The test machine's orders: what the guest is told arrives as it was meant."""

import pathlib
import subprocess

from hypothesis import given
from hypothesis import strategies as st
from support.vm import __main__ as vm
from support.vm import booting
from support.vm.booting import Guest
from support.vm.kernels import Kernel

words = st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1)


@given(st.lists(words, min_size=1, max_size=4), words)
def test_words_and_variables_reach_the_guest_unchanged(command: list[str], value: str) -> None:
    kernel = Kernel(pathlib.Path("/k"), "6.1")
    guest = Guest(kernel, ["printf", "%s\\n", *command], pathlib.Path("/"), {"TOLD": value})
    lines = booting.orders(guest)
    script = (
        f'{lines["environment"]}\nprintf \'%s\\n\' "$TOLD" "$GUEST_MODULES"\n{lines["command"]}'
    )
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [value, "/k/lib/modules/6.1", *command]


def test_files_with_a_marked_test_are_found(tmp_path: pathlib.Path) -> None:
    mark = "@pytest.mark."  # not written out: this file has no such test
    texts = {
        "test_a.py": f'{mark}kernel(kinds=["vlan"])', "test_b.py": "@pytest.mark.root",
        "test_c.py": f"{mark}guest(reason='x')", "other.py": f"{mark}guest(",
    }  # fmt: skip
    (tmp_path / "net").mkdir()
    for name, text in texts.items():
        (tmp_path / "net" / name).write_text(text)
    found = [pathlib.Path(each).name for each in vm.marked(tmp_path)]
    assert found == ["test_a.py", "test_c.py"]


def test_the_guest_learns_nothing_of_the_callers_own_variables() -> None:
    mine = {"BITTS_CACHE": "/cache", "SECRET": "x", "CI": "true"}
    told = vm.environment(mine, "vlan,vrf")
    assert "SECRET" not in told
    assert (told["BITTS_CACHE"], told["BITTS_GUEST_KINDS"]) == ("/cache", "vlan,vrf")
