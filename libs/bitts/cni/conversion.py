"""Results from one version of the specification into another, field by field.

Three shapes exist; conversions inside a shape only change the label, those between shapes go
through 0.4.0 exactly as Go's library does, with its losses and its one error::

    0.1.0, 0.2.0  ◄──►  0.3.0 – 0.4.0  ◄──►  1.0.0, 1.1.0
"""

from dataclasses import replace

from bitts.cni import versions
from bitts.cni.results import Interface, Ip, Result, Route, relabelled
from bitts.cni.versions import Family

_MIDDLE = "0.4.0"


class ConversionError(ValueError):
    """A result has no equivalent in the version that is wanted."""


def convert(result: Result, version: str) -> Result:
    """Return ``result`` as a document of ``version`` would hold it ("" is 0.1.0).

    Raises ConversionError for an unknown version, or for one of the oldest without an address.
    """
    version = version or "0.1.0"
    if version == result.version:
        return result
    source, target = versions.family(result.version), versions.family(version)
    if source is None or target is None:
        raise ConversionError(f"no converter for CNI result version {result.version} to {version}")
    middle = result
    if source is not target and Family.LISTED not in {source, target}:
        middle = convert(result, _MIDDLE)
    elif source is Family.CURRENT and target is Family.LISTED:
        middle = _listed(result)
    if target is Family.FLAT and source is not Family.FLAT:
        return _flat(middle, version)
    if target is Family.CURRENT and source is not Family.CURRENT:
        return _current(middle, version)
    return relabelled(middle, version)


def _listed(result: Result) -> Result:
    """1.x to 0.3–0.4: addresses get a version, interfaces lose what came later."""
    return replace(
        result,
        version=_MIDDLE,
        interfaces=tuple(
            Interface(each.name, each.mac, each.sandbox) for each in result.interfaces
        ),
        ips=tuple(replace(ip, version=str(ip.address.version)) for ip in result.ips),
    )


def _current(result: Result, version: str) -> Result:
    """0.3–0.4 to 1.x: addresses lose their version."""
    ips = tuple(replace(ip, version=None) for ip in result.ips)
    return replace(result, version=version, ips=ips)


def _flat(result: Result, version: str) -> Result:
    """0.3–0.4 to the oldest: the first address of each family, and that family's routes."""
    chosen: list[Ip] = []
    for number in ("4", "6"):
        found = next((ip for ip in result.ips if ip.version == number), None)
        if found is not None:
            chosen.append(replace(found, interface=None))
    if not chosen:
        raise ConversionError("cannot convert: no valid IP addresses")
    families = {int(ip.version or "0") for ip in chosen}
    routes = tuple(
        Route(route.destination, route.gateway)
        for route in result.routes
        if route.destination.version in families
    )
    return Result(version, (), tuple(chosen), routes, result.dns)
