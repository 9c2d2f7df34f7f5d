"""The checked-in generated code is what the generator makes of libs/proto today."""

import pathlib
import subprocess

import pytest
from bitts.csi import identity, v1
from bitts.csi._generated import secret_fields
from support import building, generator

PACKAGES = ("csi/_generated", "rpc/_generated")


@pytest.mark.builds(building.COMPILER)
def test_generated_code_is_current(tmp_path: pathlib.Path) -> None:
    command = [str(generator.python()), "scripts/generate.py", "--output", str(tmp_path)]
    subprocess.run(command, cwd=generator.ROOT, check=True, timeout=120)
    for package in PACKAGES:
        made = {path.name: path.read_text() for path in (tmp_path / package).glob("*.py")}
        kept = (generator.ROOT / "libs" / "bitts" / package).glob("*.py")
        assert {path.name: path.read_text() for path in kept} == made, "run: make generate"


def test_the_identity_service_stands_alone_and_is_that_of_all() -> None:
    assert {"ProbeRequest", "BoolValue", "IdentityStub"} < set(identity.__all__) < set(v1.__all__)
    assert all(getattr(v1, name) is getattr(identity, name) for name in identity.__all__)


def test_every_secret_field_is_in_the_table_by_its_class() -> None:
    for name, fields in secret_fields.SECRET_FIELDS.items():
        assert fields <= set(getattr(v1, name).__dataclass_fields__)
    with_secrets = {
        name
        for name in v1.__all__
        if "secrets" in getattr(getattr(v1, name), "__dataclass_fields__", {})
    }
    assert with_secrets == set(secret_fields.SECRET_FIELDS)


def test_stubs_and_services_know_the_same_methods() -> None:
    for service in ("Identity", "Controller", "GroupController", "SnapshotMetadata", "Node"):
        served = getattr(v1, f"{service}Base")().rpc_methods()
        called = [name for name in vars(getattr(v1, f"{service}Stub")) if name[0] != "_"]
        assert [method.answer.__name__ for method in served] == called
        assert all(method.name.startswith(f"/csi.v1.{service}/") for method in served)
