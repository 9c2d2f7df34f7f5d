"""What the controller manager puts into every namespace: an account for pods, and whom to trust.

Both come back when somebody deletes them, and the certificate when somebody changes it.
"""

from devcluster import api as apis
from devcluster.loops import actions, facts, keyed, names
from devcluster.loops.actions import Action, Create, Patch
from devcluster.loops.facts import Obj
from devcluster.store import Subscriber

ACCOUNT = "default"
BUNDLE = "kube-root-ca.crt"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


def decide(
    namespace: Obj, account: Obj | None, bundle: Obj | None, certificate: str
) -> list[Action]:
    """Complete a namespace, unless it is to go."""
    if facts.is_deleting(namespace):
        return []
    name = namespace["metadata"]["name"]
    plan: list[Action] = []
    if account is None:
        plan.append(Create(names.ACCOUNTS, {"metadata": {"name": ACCOUNT, "namespace": name}}))
    data = {"ca.crt": certificate}
    if bundle is None:
        annotations = {"kubernetes.io/description": DESCRIPTION}
        metadata = {"name": BUNDLE, "namespace": name, "annotations": annotations}
        plan.append(Create(names.CONFIG_MAPS, {"metadata": metadata, "data": data}))
    elif bundle.get("data") != data:
        others = dict.fromkeys(bundle.get("data") or ())
        plan.append(Patch(names.CONFIG_MAPS, f"{name}/{BUNDLE}", {"data": {**others, **data}}))
    return plan


class Accounts:
    """Feeds namespaces (``name``) through its queue."""

    def __init__(self, api: apis.Api, certificate: str) -> None:
        self._api = api
        self._certificate = certificate
        self.loop = keyed.KeyedLoop("accounts", self._sync)
        self._performer = actions.Performer(api, "root-ca-certificate-publisher", self.loop.decided)
        namespaces = api.resource(*names.NAMESPACES)
        api.subscribe(namespaces, self._namespace_changed)
        for kind, name in ((names.ACCOUNTS, ACCOUNT), (names.CONFIG_MAPS, BUNDLE)):
            api.subscribe(api.resource(*kind), self._follower(name))
        for namespace in api.list(namespaces):
            self.loop.add(facts.key(namespace))

    def _namespace_changed(self, event: str, _old: Obj | None, new: Obj) -> None:
        if event == "ADDED":
            self.loop.add(facts.key(new))

    def _follower(self, name: str) -> Subscriber:
        def follow(event: str, _old: Obj | None, new: Obj) -> None:
            if new["metadata"]["name"] == name and event != "ADDED":
                self.loop.add(new["metadata"]["namespace"])

        return follow

    def _sync(self, key: str) -> None:
        namespace = self._api.get(self._api.resource(*names.NAMESPACES), key)
        if namespace is not None:
            account = self._api.get(self._api.resource(*names.ACCOUNTS), ACCOUNT, key)
            bundle = self._api.get(self._api.resource(*names.CONFIG_MAPS), BUNDLE, key)
            self._performer.perform(decide(namespace, account, bundle, self._certificate))
