"""CNI_ARGS: ``K=V;K=V`` from the environment, with Go's strictness.

A trailing semicolon or a second ``=`` is an error even with IgnoreUnknown; keys are
case-sensitive; keys that a plugin does not know are an error unless IgnoreUnknown says so.
"""

from collections.abc import Collection, Mapping

IGNORE_UNKNOWN = "IgnoreUnknown"

KUBERNETES_POD = "K8S_POD_NAME"
KUBERNETES_NAMESPACE = "K8S_POD_NAMESPACE"
KUBERNETES_UID = "K8S_POD_UID"
KUBERNETES_SANDBOX = "K8S_POD_INFRA_CONTAINER_ID"

_TRUE = {"1", "true"}
_FALSE = {"0", "false"}


def parse(text: str, known: Collection[str]) -> Mapping[str, str]:
    """Return the pairs that a plugin knowing ``known`` reads; raises ValueError as Go words it."""
    if not text:
        return {}
    found: dict[str, str] = {}
    unknown: list[str] = []
    ignores = False
    for pair in text.split(";"):
        key, separator, value = pair.partition("=")
        if not separator or "=" in value:
            raise ValueError(f'ARGS: invalid pair "{pair}"')
        if key == IGNORE_UNKNOWN:
            ignores = _boolean(value)
        elif key in known:
            found[key] = value
        else:
            unknown.append(pair)
    if unknown and not ignores:
        shown = " ".join(f'"{pair}"' for pair in unknown)
        raise ValueError(f"ARGS: unknown args [{shown}]")
    return found


def lenient(text: str) -> Mapping[str, str]:
    """Return every pair, split at its first ``=``; what is no pair is left out."""
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {key: value for key, separator, value in pairs if separator and key}


def _boolean(text: str) -> bool:
    folded = text.lower()
    if folded in _TRUE:
        return True
    if folded in _FALSE:
        return False
    raise ValueError(f'ARGS: error parsing value of pair "{IGNORE_UNKNOWN}={text}"')
