"""From plain values to CSI messages and back: the only place that knows both."""

from collections.abc import Mapping

from bitts.csi import v1
from bitts.volumes import accessmodes

from csi_provisioner.model import Created, Draft
from csi_provisioner.topology import Requirement, Term


def create_volume(
    draft: Draft, secrets: Mapping[str, str], *, multi_writer: bool
) -> v1.CreateVolumeRequest:
    """The CreateVolume call for a draft; ``secrets`` is the Secret's content, or empty.

    ``multi_writer``: the driver reports SINGLE_NODE_MULTI_WRITER.
    """
    modes = accessmodes.to_csi(draft.access_modes, multi_writer=multi_writer)
    return v1.CreateVolumeRequest(
        name=draft.volume_name,
        capacity_range=v1.CapacityRange(required_bytes=draft.required_bytes),
        volume_capabilities=[_capability(draft, mode) for mode in modes],
        parameters=dict(draft.parameters),
        secrets=dict(secrets),
        accessibility_requirements=_requirement(draft.requirement),
        mutable_parameters=dict(draft.mutable_parameters or {}),
    )


def created(reply: v1.CreateVolumeResponse) -> Created | None:
    """What a CreateVolume reply says; None if the driver left the volume out."""
    volume = reply.volume
    if volume is None:
        return None
    places = (tuple(sorted(place.segments.items())) for place in volume.accessible_topology)
    return Created(
        volume_id=volume.volume_id,
        capacity_bytes=volume.capacity_bytes,
        context=dict(volume.volume_context),
        topology=tuple(place for place in places if place),
    )


def delete_volume(volume_id: str, secrets: Mapping[str, str]) -> v1.DeleteVolumeRequest:
    """The DeleteVolume call."""
    return v1.DeleteVolumeRequest(volume_id=volume_id, secrets=dict(secrets))


def get_capacity(parameters: Mapping[str, str], segment: Term) -> v1.GetCapacityRequest:
    """The GetCapacity call for one class and place; ``parameters`` go as the class has them."""
    return v1.GetCapacityRequest(
        parameters=dict(parameters), accessible_topology=_topology(segment)
    )


def _capability(draft: Draft, mode: accessmodes.AccessMode) -> v1.VolumeCapability:
    access_mode = v1.VolumeCapabilityAccessMode(mode=v1.VolumeCapabilityAccessModeMode(mode))
    if draft.volume_mode == "Block":
        block = v1.VolumeCapabilityBlockVolume()
        return v1.VolumeCapability(block=block, access_mode=access_mode)
    mount = v1.VolumeCapabilityMountVolume(
        fs_type=draft.fs_type, mount_flags=list(draft.mount_options)
    )
    return v1.VolumeCapability(mount=mount, access_mode=access_mode)


def _requirement(requirement: Requirement | None) -> v1.TopologyRequirement | None:
    if requirement is None:
        return None
    return v1.TopologyRequirement(
        requisite=[_topology(term) for term in requirement.requisite],
        preferred=[_topology(term) for term in requirement.preferred],
    )


def _topology(term: Term) -> v1.Topology:
    return v1.Topology(segments=dict(term))
