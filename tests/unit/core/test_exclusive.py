"""A state directory has one holder at a time."""

import pathlib

import pytest
from bitts.core import exclusive
from bitts.core.process import ExitError


async def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: pathlib.Path) -> None:
    state = tmp_path / "made" / "here"
    async with exclusive.holding(state, "local-driver"):
        with pytest.raises(ExitError, match=r"--state-dir .*another local-driver works here"):
            await exclusive.holding(state, "local-driver").__aenter__()
    async with exclusive.holding(state, "local-driver"):
        assert (state / "lock").exists()


async def test_a_place_that_cannot_be_a_folder_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExitError, match=r"--state-dir .*file"):
        await exclusive.holding(tmp_path / "file", "local-driver").__aenter__()
