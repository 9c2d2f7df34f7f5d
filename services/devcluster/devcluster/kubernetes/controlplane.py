"""The command lines of the control plane. Pure.

Listeners are on the loopback and ask for a certificate or a token. What has no client here
(metrics of the controllers) does not listen at all.
"""

from dataclasses import dataclass

from devcluster.kubernetes import addresses
from devcluster.kubernetes.layout import Layout

AUDIT_POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  verbs: [watch]
  resources:
  - {group: "", resources: [persistentvolumeclaims, persistentvolumes]}
  - {group: storage.k8s.io, resources: [storageclasses, volumeattachments]}
- level: None
"""
"""Every write; and the watches by which one sees that a storage controller has started."""

AUDIT_MEGABYTES = 4000
"""Size at which the audit log is put aside; never within a test run."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports on 127.0.0.1."""

    etcd: int
    api: int


def egress_selector(layout: Layout) -> str:
    """Return how the API server reaches kubelets, pods and Services: through our tunnel."""
    return f"""apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: {layout.tunnel}
"""


def etcd(layout: Layout, ports: Ports, *, keep: bool) -> list[str]:
    """Return etcd's arguments; what need not outlive the machine is not synchronised to disk."""
    url, pki = f"https://127.0.0.1:{ports.etcd}", layout.pki
    return [
        "--name=default",
        f"--data-dir={layout.etcd}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--client-cert-auth",
        f"--trusted-ca-file={layout.directory / 'ca.crt'}",
        f"--cert-file={pki / 'etcd.crt'}",
        f"--key-file={pki / 'etcd.key'}",
        "--log-level=warn",
        *([] if keep else ["--unsafe-no-fsync"]),
    ]


def api_server(layout: Layout, ports: Ports, *, has_nodes: bool) -> list[str]:
    """Return kube-apiserver's arguments."""
    pki, ca = layout.pki, layout.directory / "ca.crt"
    return [
        f"--etcd-servers=https://127.0.0.1:{ports.etcd}",
        f"--etcd-cafile={ca}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api}",
        f"--advertise-address={addresses.GATEWAY}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={ca}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        f"--service-account-key-file={pki / 'accounts.key'}",
        f"--service-account-signing-key-file={pki / 'accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={addresses.SERVICES}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={ca}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--audit-policy-file={pki / 'audit-policy.yaml'}",
        f"--audit-log-path={layout.audit}",
        f"--audit-log-maxsize={AUDIT_MEGABYTES}",
        *(
            [
                f"--egress-selector-config-file={pki / 'egress.yaml'}",
                "--enable-aggregator-routing=true",
            ]
            if has_nodes
            else []
        ),
    ]


def controller_manager(layout: Layout) -> list[str]:
    """Return kube-controller-manager's arguments; its own throttle is out of the way of tests."""
    return [
        f"--kubeconfig={layout.pki / 'kube-controller-manager.kubeconfig'}",
        f"--service-account-private-key-file={layout.pki / 'accounts.key'}",
        f"--root-ca-file={layout.directory / 'ca.crt'}",
        f"--cluster-signing-cert-file={layout.directory / 'ca.crt'}",
        f"--cluster-signing-key-file={layout.pki / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--allocate-node-cidrs=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def scheduler(layout: Layout) -> list[str]:
    """Return kube-scheduler's arguments."""
    return [
        f"--kubeconfig={layout.pki / 'kube-scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]
