import pytest
from bitts.volumes import naming

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.mark.parametrize(
    ("length", "name"),
    [
        (-1, f"pvc-{UID}"),
        (8, "pvc-0f1e2d3c"),
        (12, "pvc-0f1e2d3c4b5a"),
        (32, "pvc-" + UID.replace("-", "")),
    ],
)
def test_the_name_follows_from_prefix_and_uid(length: int, name: str) -> None:
    assert naming.volume_name("pvc", UID, length) == name


def test_without_prefix_the_flag_is_named() -> None:
    with pytest.raises(naming.NamingError, match="--volume-name-prefix"):
        naming.volume_name("", UID)


def test_without_uid_the_claim_is_blamed() -> None:
    with pytest.raises(naming.NamingError, match=r"metadata\.uid"):
        naming.volume_name("pvc", "")


@pytest.mark.parametrize("length", [0, -2, 33, 1000])
def test_lengths_that_give_no_usable_name_are_refused(length: int) -> None:
    with pytest.raises(naming.NamingError, match="--volume-name-uuid-length"):
        naming.check_uuid_length(length)


@pytest.mark.parametrize("length", [-1, 1, 32])
def test_usable_lengths_pass(length: int) -> None:
    naming.check_uuid_length(length)


@pytest.mark.parametrize(
    ("name", "label", "subdomain"),
    [
        ("abc", True, True),
        ("a-1", True, True),
        ("0", True, True),
        ("a.b", False, True),
        ("a..b", False, False),
        ("-a", False, False),
        ("a-", False, False),
        ("A", False, False),
        ("", False, False),
        ("a\n", False, False),
        ("a" * 63, True, True),
        ("a" * 64, False, True),
        ("a" * 253, False, True),
        ("a" * 254, False, False),
    ],
)
def test_rfc_1123_names(name: str, label: bool, subdomain: bool) -> None:
    assert naming.is_label(name) is label
    assert naming.is_subdomain(name) is subdomain
