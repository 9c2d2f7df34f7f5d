"""Dockerfiles and the compose file: what can be said about them without an engine."""

import pathlib
import tomllib

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
SERVICES = sorted(path.parent for path in (ROOT / "services").glob("*/Dockerfile"))


def scripts(service: pathlib.Path) -> set[str]:
    project = tomllib.loads((service / "pyproject.toml").read_text())["project"]
    return set(project["scripts"])


def test_every_part_of_the_stack_has_an_image() -> None:
    names = {service.name for service in SERVICES}
    assert {"console", "devcluster", "local-driver", "provisioner"} <= names


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_an_image_holds_the_libraries_and_its_own_folder_only(service: pathlib.Path) -> None:
    lines = (service / "Dockerfile").read_text().splitlines()
    copied = {
        line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line
    }
    # `bitts` starts the other services as processes beside itself.
    own = "services" if service.name == "console" else f"services/{service.name}"
    assert copied - {"examples"} == {"constraints.txt", "libs", own}
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_an_image_installs_the_extras_that_the_service_asks_for(service: pathlib.Path) -> None:
    project = tomllib.loads((service / "pyproject.toml").read_text())["project"]
    (needed,) = [name for name in project["dependencies"] if name.startswith("bitts[")]
    extras = needed.removeprefix("bitts")
    words = " ".join((service / "Dockerfile").read_text().replace("\\\n", " ").split())
    assert f'"./libs{extras}" ./services/{service.name}' in words


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_an_image_starts_a_program_of_its_service(service: pathlib.Path) -> None:
    last = (service / "Dockerfile").read_text().splitlines()[-1]
    assert last.startswith("ENTRYPOINT")
    assert pathlib.PurePath(last.split('"')[1]).name in scripts(service)


def test_the_compose_file_is_valid_and_builds_what_is_there() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert set(compose) <= {"name", "services", "volumes"}
    for name, service in compose["services"].items():
        assert (ROOT / service["build"]["dockerfile"]).is_file(), name
        named = {entry.split(":")[0] for entry in service["volumes"] if entry[0].isalpha()}
        assert named <= set(compose["volumes"]), name
        assert set(service.get("depends_on", ())) <= set(compose["services"]), name
