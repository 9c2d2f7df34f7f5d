"""What a new cluster has from the start: its namespaces, and the resources of stored CRDs."""

from devcluster import errors
from devcluster.api import Api

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def complete(api: Api) -> None:
    """Create what is missing."""
    namespaces = api.resource("namespaces")
    for name in NAMESPACES:
        if api.get(namespaces, name) is None:
            api.create(namespaces, {"metadata": {"name": name}})
    crds = api.resource("customresourcedefinitions", "apiextensions.k8s.io")
    for crd in api.list(crds):
        try:
            api.serve(crd)
        except errors.ApiError:
            continue
