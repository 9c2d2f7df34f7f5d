"""Making the driver known to kubelet without a registrar beside it, and keeping it known.

kubelet does not try again by itself once registering has failed on its side: a new socket has
to appear. A registrar dies and is restarted for that; we offer the socket anew after a pause.
"""

import asyncio

from bitts.core import backoff, logs
from bitts.csi import registration

from local_driver.options import RegistrationOptions

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between a refusal and the next offer."""

_log = logs.get("registration")


async def offer(driver_name: str, options: RegistrationOptions) -> None:
    """Serve the registration until cancelled; raises OSError when it cannot be served."""
    refusals = 0
    refused = asyncio.Event()

    async def heard(status: registration.RegistrationStatus) -> None:
        nonlocal refusals
        if status.plugin_registered:
            refusals = 0
        else:
            refused.set()

    while True:
        served = registration.Registration(driver_name, options.endpoint, on_status=heard)
        try:
            path = await served.serve(options.folder)
            _log.info("Offered to kubelet", socket=path, endpoint=options.endpoint)
            await refused.wait()
        finally:
            await served.stop()
        refused.clear()
        pause = backoff.delay(refusals, FIRST_PAUSE, LONGEST_PAUSE)
        refusals += 1
        _log.info("Offering again after a refusal", seconds=pause)
        await asyncio.sleep(pause)
