"""Our Dockerfiles, read for whoever makes images without Docker."""

import pathlib

import pytest
from support import dockerfiles

ROOT = pathlib.Path(__file__).parents[3]
BASE = f"FROM {dockerfiles.BASE} AS build\n"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("services/*/Dockerfile")), ids=lambda it: it.parent.name
)
def test_every_dockerfile_is_understood(path: pathlib.Path) -> None:
    found = dockerfiles.read(path.read_text())
    assert found.entrypoint
    assert found.is_compiled
    assert all(one.startswith("./") for one in found.requirements)
    for requirement in found.requirements:
        assert (ROOT / requirement.partition("[")[0] / "pyproject.toml").is_file()


def test_a_target_is_read_with_its_own_links_and_program() -> None:
    text = (ROOT / "services/registrar/Dockerfile").read_text()
    found = dockerfiles.read(text, "livenessprobe")
    assert found.entrypoint == ("/livenessprobe",)
    assert found.links == (("/livenessprobe", "/opt/bitts/bin/livenessprobe"),)
    assert found.requirements == ("./libs[csi]", "./services/registrar")
    assert dockerfiles.read(text).entrypoint == ("/csi-node-driver-registrar",)


def test_packages_are_those_of_the_last_stage() -> None:
    found = dockerfiles.read((ROOT / "services/cni-daemon/Dockerfile").read_text())
    assert "nftables" in found.packages
    assert "gcc" not in found.packages
    assert found.has_shim


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("RUN curl example.net | sh", "no rule for RUN curl"),
        ("USER nobody", "no rule for USER nobody"),
        ("ENV LANG=C", "no rule for ENV LANG"),
        ("COPY secret /secret", "a final stage takes /opt/bitts"),
    ],
)
def test_what_is_not_understood_is_refused(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        dockerfiles.read(f"{BASE}\nFROM {dockerfiles.BASE}\n{line}\n")


def test_another_base_and_an_unknown_target_are_refused() -> None:
    with pytest.raises(ValueError, match="FROM debian"):
        dockerfiles.read("FROM debian AS build\n")
    with pytest.raises(ValueError, match="no stage is called 'x'"):
        dockerfiles.read(BASE, "x")
