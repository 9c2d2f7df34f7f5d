"""Secret references that a StorageClass names for each use, and their templates.

Per use a class may give a pair of keys (name and namespace), for some uses under a deprecated
spelling; a default pair stands in where a use has none of its own. Only references are handled
here: the Secrets' content is read by whoever makes the call and is kept nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bitts.volumes import naming, templates

PREFIX = "csi.storage.k8s.io/"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a Secret is."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The StorageClass parameters of one use; ``deprecated`` is (name key, namespace key)."""

    name: str
    namespace: str
    deprecated: tuple[str, str] | None = None


def _keys(stem: str, deprecated: str = "") -> Keys:
    old = (f"{deprecated}Name", f"{deprecated}Namespace") if deprecated else None
    return Keys(f"{PREFIX}{stem}-name", f"{PREFIX}{stem}-namespace", old)


class Use(Enum):
    """What a Secret is for."""

    PROVISION = _keys("provisioner-secret", "csiProvisionerSecret")
    CONTROLLER_PUBLISH = _keys("controller-publish-secret", "csiControllerPublishSecret")
    NODE_STAGE = _keys("node-stage-secret", "csiNodeStageSecret")
    NODE_PUBLISH = _keys("node-publish-secret", "csiNodePublishSecret")
    CONTROLLER_EXPAND = _keys("controller-expand-secret")
    NODE_EXPAND = _keys("node-expand-secret")
    CONTROLLER_MODIFY = _keys("controller-modify-secret")


_DEFAULT = _keys("secret")
RESERVED = frozenset(
    key for keys in (*(use.value for use in Use), _DEFAULT) for key in (keys.name, keys.namespace)
)
"""All parameters with the reserved prefix that this module reads."""


class SecretReferenceError(ValueError):
    """A reference in a StorageClass is wrong; the text names the parameter."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The values that templates may use."""

    volume_name: str
    claim_namespace: str = ""
    claim_name: str = ""
    claim_annotations: Mapping[str, str] | None = None


def reference(use: Use, parameters: Mapping[str, str], owner: Owner) -> SecretRef | None:
    """The Secret that a class names for ``use``, or None. Raises SecretReferenceError."""
    pair = _pair(use.value, parameters) or _pair(_DEFAULT, parameters)
    if pair is None:
        return None
    name, namespace = pair
    in_namespace = {"pv.name": owner.volume_name, "pvc.namespace": owner.claim_namespace}
    in_name = in_namespace | {"pvc.name": owner.claim_name}
    for key, value in (owner.claim_annotations or {}).items():
        in_name[f"pvc.annotations['{key}']"] = value
    return SecretRef(
        _resolve(namespace, parameters[namespace], in_namespace, is_name=False),
        _resolve(name, parameters[name], in_name, is_name=True),
    )


def _pair(keys: Keys, parameters: Mapping[str, str]) -> tuple[str, str] | None:
    """The two parameters (name key, namespace key) that are set, both or none."""
    chosen = []
    for index, key in enumerate((keys.name, keys.namespace)):
        old = keys.deprecated[index] if keys.deprecated else ""
        if key in parameters and old in parameters:
            raise SecretReferenceError(
                f"parameters {key!r} and {old!r} are both set: keep the first only"
            )
        chosen.append(old if old in parameters else key)
    name, namespace = chosen
    if name not in parameters and namespace not in parameters:
        return None
    for key, other in ((name, namespace), (namespace, name)):
        if key not in parameters:
            raise SecretReferenceError(f"parameter {other!r} is set, but {key!r} is not: set both")
        if not parameters[key]:
            raise SecretReferenceError(f"parameter {key!r} is empty: set it, or remove the pair")
    return name, namespace


def _resolve(key: str, template: str, variables: Mapping[str, str], *, is_name: bool) -> str:
    value, unknown = templates.expand(template, variables)
    if unknown:
        tokens = " ".join(f'"{token}"' for token in unknown)
        raise SecretReferenceError(
            f"parameter {key!r}: template {template!r} has invalid tokens: [{tokens}]"
        )
    good = naming.is_subdomain(value) if is_name else naming.is_label(value)
    if not good:
        what = "the name of a Secret" if is_name else "a namespace"
        raise SecretReferenceError(f"parameter {key!r}: {template!r} gives {value!r}, not {what}")
    return value
