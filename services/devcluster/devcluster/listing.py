"""LIST: selection, order, pages that all show the same revision, and the list's bytes."""

from dataclasses import dataclass

from devcluster import errors, requests, views
from devcluster.requests import Call
from devcluster.store import Collection, Key, Store, Stored, encode


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects in key order, at one revision; ``token`` leads to the rest."""

    items: list[Stored]
    revision: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, object]:
        """Return the list's metadata."""
        found: dict[str, object] = {"resourceVersion": str(self.revision)}
        if self.token:
            found["continue"] = self.token
        if self.remaining is not None:
            found["remainingItemCount"] = self.remaining
        return found


def page(store: Store, collection: Collection, call: Call) -> Page:
    """Select what a LIST asks for; raises ApiError 400, 410, 504."""
    query = call.query
    label, field = query.get("labelSelector", ""), query.get("fieldSelector", "")
    matches = views.selection(call.resource, label, field)
    revision, start, objects = _snapshot(store, collection, call)
    keys = sorted(k for k in objects if call.namespace in ("", k[0]) and call.name in ("", k[1]))
    if start is not None:
        keys = [key for key in keys if key > start]
    limit = requests.number(query, "limit")
    items: list[Stored] = []
    for index, key in enumerate(keys):
        if matches(objects[key].value):
            items.append(objects[key])
        if limit and len(items) == limit and index + 1 < len(keys):
            rest = None if label or field else len(keys) - index - 1
            return Page(items, revision, requests.page_token(revision, key), rest)
    return Page(items, revision)


def _snapshot(
    store: Store, collection: Collection, call: Call
) -> tuple[int, Key | None, dict[Key, Stored]]:
    """Return the revision to show, where to go on, and the objects at that revision."""
    token = call.query.get("continue")
    if token:
        revision, start = requests.read_page_token(token)
        if revision < collection.floor:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result."
                " You must start a new list without the continue parameter."
            )
        return revision, start, collection.at(revision)
    asked = requests.number(call.query, "resourceVersion")
    if asked > store.revision:
        text = f"Too large resource version: {asked}, current: {store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        details = {"causes": [cause], "retryAfterSeconds": 1}
        raise errors.ApiError(504, "Timeout", text, details)
    if asked and call.query.get("resourceVersionMatch") == "Exact":
        if asked < collection.floor:
            raise errors.expired(f"The resourceVersion {asked} is too old: list without it")
        return asked, None, collection.at(asked)
    return store.revision, None, collection.objects


def list_bytes(call: Call, found: Page, items: list[bytes]) -> bytes:
    """Return a List object around already encoded items."""
    resource = call.resource
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    if not resource.custom:  # what kind items are is told by the list alone
        told = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        items = [b"{" + one[len(told) :] if one.startswith(told) else one for one in items]
    return b'%b,"metadata":%b,"items":[%b]}' % (
        encode(head)[:-1],
        encode(found.metadata()),
        b",".join(items),
    )
