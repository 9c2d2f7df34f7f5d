"""The rules of the kinds we touch: what a field must hold, and what may not change (pure).

Rules are listed per resource at the end, so that the tables read like the rules themselves.
Source: the validation of the API types in Kubernetes 1.37; texts agree where clients show or
match them.
"""

import base64
import binascii
import collections.abc
import re

from devcluster import crds, errors, metadata, pod_rules, selector_rules, volume_rules
from devcluster.errors import Cause
from devcluster.resources import Object, Resource
from devcluster.rules import (
    Change,
    Rule,
    amount,
    driver_name,
    fixed,
    longest,
    needs,
    one_of,
    parameters,
    subdomain,
)
from devcluster.tables import at


def on_create(resource: Resource, obj: Object) -> list[Cause]:
    """List what is wrong with a new object."""
    if resource.custom:
        return crds.check_value(resource, obj)
    return [cause for rule in RULES.get(resource.plural, ()) for cause in rule(obj)]


def on_update(resource: Resource, old: Object, new: Object, subresource: str) -> list[Cause]:
    """List what is wrong with a change; status is free within the rules of its fields."""
    if resource.custom:
        return crds.check_value(resource, new)
    if subresource == "status":
        return [cause for rule in STATUS_RULES.get(resource.plural, ()) for cause in rule(new)]
    causes = [cause for rule in RULES.get(resource.plural, ()) for cause in rule(new)]
    changes = CHANGES.get(resource.plural, ())
    return causes + [cause for change in changes for cause in change(old, new)]


# ---- rules of single kinds


_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_RULE = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def _data_keys(obj: Object) -> collections.abc.Iterator[Cause]:
    for name in ("data", "binaryData"):
        for key in obj.get(name) or ():
            if not _DATA_KEY.fullmatch(key):
                yield errors.invalid_value(f"{name}[{key}]", key, _KEY_RULE)


def _base64_data(obj: Object) -> collections.abc.Iterator[Cause]:
    name = "data" if obj["kind"] == "Secret" else "binaryData"
    for key, value in (obj.get(name) or {}).items():
        try:
            base64.b64decode(value or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            yield errors.invalid_value(
                f"{name}[{key}]", "", "must be base64; use stringData for text"
            )


def _frozen_data(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    if not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield errors.forbidden_value("immutable", why)
    for name in ("data", "binaryData"):
        if old.get(name) != new.get(name):
            yield errors.forbidden_value(name, why)


def _event_namespace(obj: Object) -> collections.abc.Iterator[Cause]:
    about = (obj.get("involvedObject") or {}).get("namespace") or "default"
    if about != obj["metadata"].get("namespace"):
        path = "involvedObject.namespace"
        yield errors.invalid_value(path, about, "does not match event.namespace")


def _lease_numbers(obj: Object) -> collections.abc.Iterator[Cause]:
    for name, lowest in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = at(f"spec.{name}", None)(obj)
        if value is not None and (not isinstance(value, int) or value < lowest):
            why = "must be greater than 0" if lowest else "must be greater than or equal to 0"
            yield errors.invalid_value(f"spec.{name}", value, why)


def _provisioner(obj: Object) -> collections.abc.Iterator[Cause]:
    name = obj.get("provisioner")
    if name and not metadata.is_qualified(name.lower()):
        why = "must be a qualified name such as csi.example.com"
        yield errors.invalid_value("provisioner", name, why)


RULES: dict[str, tuple[Rule, ...]] = {
    "persistentvolumeclaims": (volume_rules.claim,),
    "persistentvolumes": (
        volume_rules.access_modes,
        amount("spec.capacity.storage", shown="spec.capacity[storage]", is_required=True),
        volume_rules.capacity,
        volume_rules.source,
        volume_rules.affinity,
        driver_name("spec.csi.driver"),
        subdomain("spec.storageClassName"),
        one_of("spec.volumeMode", *volume_rules.VOLUME_MODES),
        one_of("spec.persistentVolumeReclaimPolicy", "Delete", "Recycle", "Retain"),
    ),
    "storageclasses": (
        needs("provisioner"),
        _provisioner,
        one_of("reclaimPolicy", "Delete", "Retain"),
        one_of("volumeBindingMode", "Immediate", "WaitForFirstConsumer"),
        parameters("parameters"),
        selector_rules.topologies,
    ),
    "volumeattachments": (
        needs("spec.attacher", "spec.nodeName"),
        driver_name("spec.attacher"),
        subdomain("spec.nodeName"),
        volume_rules.attachment_source,
    ),
    "csinodes": (volume_rules.csi_node_drivers,),
    "csidrivers": (
        one_of("spec.fsGroupPolicy", "File", "None", "ReadWriteOnceWithFSType"),
        volume_rules.csi_driver,
    ),
    "csistoragecapacities": (
        needs("storageClassName"),
        subdomain("storageClassName"),
        amount("capacity", may_be_zero=True),
        selector_rules.label_selector("nodeTopology"),
    ),
    "volumeattributesclasses": (
        needs("driverName", "parameters"),
        driver_name("driverName"),
        parameters("parameters"),
    ),
    "pods": (
        pod_rules.containers,
        pod_rules.volumes,
        subdomain("spec.nodeName"),
        one_of("spec.restartPolicy", "Always", "Never", "OnFailure"),
    ),
    "configmaps": (_data_keys, _base64_data),
    "secrets": (_data_keys, _base64_data),
    "events": (_event_namespace,),
    "leases": (_lease_numbers,),
    "customresourcedefinitions": (crds.check_definition,),
}

STATUS_RULES: dict[str, tuple[Rule, ...]] = {
    "volumeattachments": (
        longest("status.attachError.message", 1024),
        longest("status.detachError.message", 1024),
    ),
}

CHANGES: dict[str, tuple[Change, ...]] = {
    "persistentvolumeclaims": (volume_rules.claim_changes, fixed("spec.volumeMode")),
    "persistentvolumes": (volume_rules.volume_changes, fixed("spec.volumeMode")),
    "storageclasses": (fixed("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),),
    "volumeattachments": (fixed("spec"),),
    "csinodes": (volume_rules.csi_node_changes,),
    "csidrivers": (fixed("spec.attachRequired", "spec.volumeLifecycleModes"),),
    "csistoragecapacities": (fixed("storageClassName", "nodeTopology"),),
    "volumeattributesclasses": (fixed("driverName", "parameters"),),
    "pods": (pod_rules.changes,),
    "configmaps": (_frozen_data,),
    "secrets": (_frozen_data, fixed("type")),
}
