"""The content of a Secret, on its way into one call. It is kept nowhere and logged nowhere."""

from bitts.kube import errors, kinds
from bitts.kube.client import Client
from bitts.volumes.secrets import SecretRef


async def read(client: Client, ref: SecretRef) -> dict[str, str]:
    """All keys of a Secret, read live. Raises ApiError; Invalid for a value that is no text."""
    secret = await client.get(kinds.SECRETS, ref.name, ref.namespace)
    content = {}
    for key, value in secret.data.items():
        try:
            content[key] = value.decode()
        except UnicodeDecodeError:
            text = f"data[{key!r}] is not UTF-8 text, which is all that a driver can be given"
            raise errors.Invalid(text) from None
    return content
