"""One object of each kind that the embedded API server has, with most of the fields we know."""

import collections.abc
from typing import Any

Json = Any
_REQUIREMENT = {"key": "a", "operator": "In", "values": ["b"]}
_SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [_REQUIREMENT]}
_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [_REQUIREMENT]}]}
_SOURCE = {"apiGroup": "a.io", "kind": "Thing", "name": "y"}
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}

SPECIMENS: dict[str, Json] = {
    "persistentvolumeclaims": {
        "metadata": {
            "name": "one",
            "labels": {"a": "b"},
            "annotations": {"a": "b"},
            "finalizers": ["a.io/c"],
            "ownerReferences": [_OWNER],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "x",
            "volumeName": "v",
            "volumeMode": "Block",
            "selector": _SELECTOR,
            "dataSource": _SOURCE,
            "dataSourceRef": _SOURCE,
            "volumeAttributesClassName": "x",
            "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
        },
    },
    "persistentvolumes": {
        "metadata": {"name": "one"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "t", "name": "c", "uid": "u"},
            "mountOptions": ["a"],
            "csi": {
                "driver": "d.io",
                "volumeHandle": "h",
                "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"name": "a", "namespace": "b"},
            },
            "nodeAffinity": {"required": _TERMS},
        },
    },
    "pods": {
        "metadata": {"name": "one"},
        "spec": {
            "nodeSelector": {"a": "b"},
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "command": ["x"],
                    "env": [{"name": "a", "value": "b"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/d"}],
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _TERMS}
            },
            "tolerations": [{"key": "a"}],
        },
    },
    "secrets": {
        "metadata": {"name": "one"},
        "type": "Opaque",
        "data": {"a": "YWI="},
        "stringData": {"c": "d"},
    },
    "configmaps": {
        "metadata": {"name": "one"},
        "data": {"a": "b"},
        "binaryData": {"c": "YWI="},
        "immutable": False,
    },
    "nodes": {
        "metadata": {"name": "one"},
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "1"},
            "addresses": [{"type": "Hostname", "address": "a"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    "namespaces": {"metadata": {"name": "one"}, "spec": {"finalizers": ["kubernetes"]}},
    "events": {
        "metadata": {"name": "one"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "r",
        "message": "m",
        "type": "Normal",
        "count": 1,
        "source": {"component": "c"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    },
    "storageclasses.storage.k8s.io": {
        "metadata": {"name": "one"},
        "provisioner": "a.io",
        "parameters": {"a": "b"},
        "reclaimPolicy": "Delete",
        "mountOptions": ["x"],
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}],
    },
    "volumeattachments.storage.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "x"}},
    },
    "csinodes.storage.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {
            "drivers": [
                {"name": "a", "nodeID": "b", "topologyKeys": ["x"], "allocatable": {"count": 1}}
            ]
        },
    },
    "csidrivers.storage.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": True,
            "volumeLifecycleModes": ["Persistent"],
            "fsGroupPolicy": "File",
        },
    },
    "csistoragecapacities.storage.k8s.io": {
        "metadata": {"name": "one"},
        "storageClassName": "x",
        "capacity": "1Gi",
        "maximumVolumeSize": "1Gi",
        "nodeTopology": _SELECTOR,
    },
    "volumeattributesclasses.storage.k8s.io": {
        "metadata": {"name": "one"},
        "driverName": "a.io",
        "parameters": {"a": "b"},
    },
    "leases.coordination.k8s.io": {
        "metadata": {"name": "one"},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 1,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    },
    "customresourcedefinitions.apiextensions.k8s.io": {
        "metadata": {"name": "boats.sea.io"},
        "spec": {
            "group": "sea.io",
            "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": ["bt"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Sails", "type": "integer", "jsonPath": ".spec.sails"}
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object"}},
                        }
                    },
                }
            ],
        },
    },
}
"""Objects by resource, plural and group."""


def paths(value: Json, path: tuple[Any, ...] = ()) -> collections.abc.Iterator[tuple[Any, ...]]:
    """Iterate over the paths of all values within a value, itself first."""
    yield path
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(part, (*path, name))


def replaced(value: Json, path: tuple[Any, ...], part: Json) -> Json:
    """Return a copy of a value with another part at a path."""
    if not path:
        return part
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], part)
    return copy
