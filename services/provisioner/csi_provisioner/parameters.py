"""StorageClass parameters: which are for the driver, which are for us.

Keys under ``csi.storage.k8s.io/`` are ours: known ones are taken out, unknown ones are an error,
so that a misspelt secret key never reaches a driver as an ordinary parameter.
"""

from collections.abc import Mapping

from bitts.volumes import secrets

from csi_provisioner import names

_KNOWN = secrets.RESERVED | {names.FSTYPE}


class ParameterError(ValueError):
    """A StorageClass parameter is wrong; the text names it."""


def for_driver(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters that CreateVolume gets. Raises ParameterError."""
    unknown = [
        key for key in parameters if key.startswith(names.PARAMETER_PREFIX) and key not in _KNOWN
    ]
    if unknown:
        raise ParameterError(
            f'found unknown parameter key "{sorted(unknown)[0]}" with reserved namespace'
            f" {names.PARAMETER_PREFIX}: correct it in the StorageClass"
        )
    return {key: value for key, value in parameters.items() if key not in _KNOWN}


def fs_type(parameters: Mapping[str, str], default: str) -> str:
    """The file system that the class asks for, else ``default``. Raises ParameterError."""
    found = {
        key: value
        for key, value in parameters.items()
        if key == names.FSTYPE or key.lower() == names.DEPRECATED_FSTYPE
    }
    if len(found) > 1:
        raise ParameterError(
            f"parameters {', '.join(sorted(found))} all name a file system:"
            f" keep {names.FSTYPE!r} only"
        )
    return next(iter(found.values()), "") or default


def metadata(volume_name: str, claim_namespace: str, claim_name: str) -> dict[str, str]:
    """What --extra-create-metadata adds."""
    return {
        names.CLAIM_NAME_PARAMETER: claim_name,
        names.CLAIM_NAMESPACE_PARAMETER: claim_namespace,
        names.VOLUME_NAME_PARAMETER: volume_name,
    }
