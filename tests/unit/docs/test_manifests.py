"""Containers in manifests and examples: images that have names and tags, and flags that exist."""

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import bitts
import pytest
import yaml
from support import serviceimages

ROOT = pathlib.Path(__file__).parents[3]
BIN = pathlib.Path(sys.executable).parent
MANIFESTS = sorted([*ROOT.glob("services/*/deploy/*.yaml"), *ROOT.glob("docs/*.md")])
Container = dict[str, Any]


def documents(path: pathlib.Path) -> Iterator[Any]:
    """Return what a manifest, or each example of a page, holds."""
    text = path.read_text()
    texts = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if path.suffix == ".md" else [text]
    for one in texts:
        yield from yaml.safe_load_all(one)


def containers(value: Any) -> Iterator[Container]:
    """Return every container in an object, however deep."""
    if isinstance(value, list):
        for one in value:
            yield from containers(one)
    elif isinstance(value, dict):
        if isinstance(value.get("image"), str):
            yield value
        for one in value.values():
            yield from containers(one)


EVERY = [
    pytest.param(container, id=f"{path.name}-{container['name']}-{number}")
    for path in MANIFESTS
    for number, container in enumerate(containers(list(documents(path))))
]


def test_manifests_and_pages_have_containers() -> None:
    assert len(EVERY) >= 12


@pytest.mark.parametrize("container", EVERY)
def test_a_container_has_an_image_with_a_tag_and_flags_that_its_program_knows(
    container: Container,
) -> None:
    name, _, tag = container["image"].rpartition(":")
    assert tag, "without a tag kubelets always pull"
    registry, _, program = name.rpartition("/")
    if not registry.endswith("/bitts"):
        assert container["image"] in {serviceimages.KUBECTL, serviceimages.UPSTREAM}
        program = "csi-provisioner" if container["image"] == serviceimages.UPSTREAM else ""
    else:
        assert container["image"] == serviceimages.name(program)
        assert tag == bitts.__version__
    if program:
        command = [BIN / program, *container["args"], "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
