import pytest
from bitts.volumes import secrets
from bitts.volumes.secrets import SecretRef, Use

P = "csi.storage.k8s.io/"
OWNER = secrets.Owner("pvc-1", "team", "data", {"example.com/key": "gold"})


def pair(stem: str, name: str, namespace: str) -> dict[str, str]:
    return {f"{P}{stem}-name": name, f"{P}{stem}-namespace": namespace}


STEMS = [
    (Use.PROVISION, "provisioner-secret"),
    (Use.CONTROLLER_PUBLISH, "controller-publish-secret"),
    (Use.NODE_STAGE, "node-stage-secret"),
    (Use.NODE_PUBLISH, "node-publish-secret"),
    (Use.CONTROLLER_EXPAND, "controller-expand-secret"),
    (Use.NODE_EXPAND, "node-expand-secret"),
    (Use.CONTROLLER_MODIFY, "controller-modify-secret"),
]


@pytest.mark.parametrize(("use", "stem"), STEMS, ids=[stem for _, stem in STEMS])
def test_each_use_has_its_own_pair_and_else_the_default(use: Use, stem: str) -> None:
    own = pair(stem, "own", "ns") | pair("secret", "default", "ns")
    assert secrets.reference(use, own, OWNER) == SecretRef("ns", "own")
    assert secrets.reference(use, pair("secret", "default", "ns"), OWNER) == SecretRef(
        "ns", "default"
    )
    assert secrets.reference(use, {"other": "x"}, OWNER) is None


@pytest.mark.parametrize(
    "use", [Use.PROVISION, Use.CONTROLLER_PUBLISH, Use.NODE_STAGE, Use.NODE_PUBLISH]
)
def test_deprecated_spellings_still_count(use: Use) -> None:
    assert use.value.deprecated is not None
    name, namespace = use.value.deprecated
    assert secrets.reference(use, {name: "old", namespace: "ns"}, OWNER) == SecretRef("ns", "old")


def test_a_new_name_goes_with_a_deprecated_namespace() -> None:
    parameters = {f"{P}provisioner-secret-name": "s", "csiProvisionerSecretNamespace": "ns"}
    assert secrets.reference(Use.PROVISION, parameters, OWNER) == SecretRef("ns", "s")


def test_templates_may_use_volume_claim_and_annotations() -> None:
    parameters = pair(
        "provisioner-secret",
        "${pvc.namespace}.${pvc.name}.${pv.name}.${pvc.annotations['example.com/key']}",
        "${pvc.namespace}",
    )
    found = secrets.reference(Use.PROVISION, parameters, OWNER)
    assert found == SecretRef("team", "team.data.pvc-1.gold")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            pair("provisioner-secret", "a", "b") | {"csiProvisionerSecretName": "c"},
            "'csiProvisionerSecretName' are both set",
        ),
        ({f"{P}provisioner-secret-name": "a"}, "provisioner-secret-namespace' is not"),
        ({f"{P}provisioner-secret-namespace": "a"}, "provisioner-secret-name' is not"),
        (pair("provisioner-secret", "", "b"), "provisioner-secret-name' is empty"),
        (pair("provisioner-secret", "a", ""), "provisioner-secret-namespace' is empty"),
        (pair("provisioner-secret", "${nope}", "b"), 'invalid tokens: ["nope"]'),
        (pair("provisioner-secret", "a", "${pvc.name}"), 'invalid tokens: ["pvc.name"]'),
        (pair("provisioner-secret", "Not_A_Name", "b"), "not the name of a Secret"),
        (pair("provisioner-secret", "a", "b.c"), "not a namespace"),
        (pair("secret", "a", ""), f"{P}secret-namespace' is empty"),
    ],
)
def test_wrong_references_name_the_parameter(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(secrets.SecretReferenceError) as caught:
        secrets.reference(Use.PROVISION, parameters, OWNER)
    assert message in str(caught.value)


def test_every_key_that_is_read_is_reserved() -> None:
    assert f"{P}secret-name" in secrets.RESERVED
    assert f"{P}controller-modify-secret-namespace" in secrets.RESERVED
    assert len(secrets.RESERVED) == 16
