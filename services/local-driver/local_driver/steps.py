"""The instants inside an operation at which a crash must leave no half-made volume.

Code that touches the disk or the kernel reports each step when it is done. Nobody listens
unless a fault asks for it (``--fault CreateVolume:crash=document-written``): then the process
kills itself there, and the test that restarts it has hit exactly that instant.
"""

import enum
from collections.abc import Callable


class Step(enum.StrEnum):
    """What has just been done."""

    CONTENT_MADE = "content-made"
    DOCUMENT_WRITTEN = "document-written"
    DOCUMENT_RENAMED = "document-renamed"
    DOCUMENT_REMOVED = "document-removed"
    CONTENT_REMOVED = "content-removed"
    FORMATTED = "formatted"
    IMAGE_REPLACED = "image-replaced"
    LOOP_ATTACHED = "loop-attached"
    MOUNTED = "mounted"
    STAGED = "staged"
    TARGET_MADE = "target-made"
    PUBLISHED = "published"
    UNPUBLISHED = "unpublished"
    UNSTAGED = "unstaged"
    COPIED = "copied"
    FROZEN = "frozen"
    CONTENT_RESIZED = "content-resized"
    DEVICE_RESIZED = "device-resized"
    FILESYSTEM_GROWN = "filesystem-grown"


Reached = Callable[[Step], None]


def unobserved(_step: Step) -> None:
    """Let every step pass."""


STEPS_OF: dict[str, tuple[Step, ...]] = {
    "CreateVolume": (Step.COPIED, Step.CONTENT_MADE, Step.DOCUMENT_WRITTEN, Step.DOCUMENT_RENAMED),
    "CreateSnapshot": (
        Step.FROZEN,
        Step.COPIED,
        Step.CONTENT_MADE,
        Step.DOCUMENT_WRITTEN,
        Step.DOCUMENT_RENAMED,
    ),
    "DeleteSnapshot": (Step.DOCUMENT_REMOVED, Step.CONTENT_REMOVED),
    "CreateVolumeGroupSnapshot": (
        Step.FROZEN,
        Step.COPIED,
        Step.CONTENT_MADE,
        Step.DOCUMENT_WRITTEN,
        Step.DOCUMENT_RENAMED,
    ),
    "DeleteVolumeGroupSnapshot": (Step.DOCUMENT_REMOVED, Step.CONTENT_REMOVED),
    "DeleteVolume": (Step.DOCUMENT_REMOVED, Step.CONTENT_REMOVED),
    "NodeStageVolume": (
        Step.FORMATTED,
        Step.FILESYSTEM_GROWN,
        Step.IMAGE_REPLACED,
        Step.DOCUMENT_WRITTEN,
        Step.DOCUMENT_RENAMED,
        Step.LOOP_ATTACHED,
        Step.MOUNTED,
        Step.STAGED,
    ),
    "NodePublishVolume": (Step.TARGET_MADE, Step.LOOP_ATTACHED, Step.PUBLISHED),
    "NodeUnpublishVolume": (Step.UNPUBLISHED,),
    "NodeUnstageVolume": (Step.UNSTAGED,),
    "ControllerExpandVolume": (
        Step.CONTENT_RESIZED,
        Step.DOCUMENT_WRITTEN,
        Step.DOCUMENT_RENAMED,
    ),
    "ControllerPublishVolume": (Step.DOCUMENT_WRITTEN, Step.DOCUMENT_RENAMED),
    "ControllerUnpublishVolume": (Step.DOCUMENT_WRITTEN, Step.DOCUMENT_RENAMED),
    "ControllerModifyVolume": (Step.DOCUMENT_WRITTEN, Step.DOCUMENT_RENAMED),
    "NodeExpandVolume": (Step.DEVICE_RESIZED, Step.FILESYSTEM_GROWN),
}
"""Which steps an RPC goes through, in order."""
