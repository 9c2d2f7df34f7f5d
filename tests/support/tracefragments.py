"""Parts of the traces that tests expect: what a claim and its volume go through wherever used.

Written down from Kubernetes 1.37; see ``traces`` for the notation.
"""


def claimed(claim: str = "data") -> str:
    """A user makes a claim of a class."""
    return f"""
claim {claim} by bitts-tests
    new
    class=CLASS
    phase=Pending
    finalizer kubernetes.io/pvc-protection
"""


def provisioned(claim: str = "data", *, retained: bool = False) -> str:
    """The provisioner is asked for a volume, makes it, and it is bound."""
    finalizer = "" if retained else "finalizer external-provisioner.volume.kubernetes.io/finalizer"
    return f"""
claim {claim} by kube-controller-manager
    volume.beta.kubernetes.io/storage-provisioner=DRIVER
    volume.kubernetes.io/storage-provisioner=DRIVER
volume VOLUME by csi-provisioner
    new
    phase=Pending
    claimRef.apiVersion=v1
    claimRef.kind=PersistentVolumeClaim
    claimRef.namespace=NAMESPACE
    claimRef.name={claim}
    claimRef.uid=set
    claimRef.resourceVersion=set
    {finalizer}
    finalizer kubernetes.io/pv-protection
    pv.kubernetes.io/provisioned-by=DRIVER
    volume.kubernetes.io/provisioner-deletion-secret-name
    volume.kubernetes.io/provisioner-deletion-secret-namespace
volume VOLUME by kube-controller-manager/status
    phase=Bound
{bound(claim)}"""


def bound(claim: str = "data", *, named: bool = False) -> str:
    """The claim's half of the bond; ``named``: its user has named the volume."""
    by_controller = "pv.kubernetes.io/bound-by-controller=yes\n    volumeName=VOLUME"
    return f"""
claim {claim} by kube-controller-manager
    pv.kubernetes.io/bind-completed=yes
    {"" if named else by_controller}
claim {claim} by kube-controller-manager/status
    phase=Bound
    accessModes=['ReadWriteOnce']
    capacity=1Mi
"""


def claim_deleted(claim: str = "data") -> str:
    """Nobody uses the claim, so it goes at once, and its volume is released."""
    return f"""
claim {claim}
    deletion asked for
{claim_gone(claim)}"""


def claim_gone(claim: str = "data") -> str:
    """A claim that was to go goes, and its volume is released."""
    return f"""
claim {claim}
    gone
volume VOLUME by kube-controller-manager/status
    phase=Released
"""


VOLUME_DELETED = """
volume VOLUME
    deletion asked for
volume VOLUME
    -finalizer *
volume VOLUME
    gone
"""
"""The provisioner takes a released volume away; who lets go of it first does not matter."""
