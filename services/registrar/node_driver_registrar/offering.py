"""The registration socket: what has been offered to the kubelet, and what it said."""

import asyncio
import time
from collections.abc import Callable

from bitts.core import logs
from bitts.core.process import ExitError
from bitts.csi import registration

from node_driver_registrar import names
from node_driver_registrar.model import Action, Driver, GiveUp, Offer, Offered, Seen, Withdraw, Word

INTERVAL = 2.0
"""Seconds between two looks whether our socket is where the kubelet finds it."""

_STOP = 1.0  # seconds for the kubelet to take an answer


class Offering:
    """Puts the socket up and takes it away, as decided.

    ``endpoint`` is the driver's socket for the kubelet, ``folder`` where it looks for plugins.
    ``on_change`` is called when something changed that has to be decided about, ``on_end`` to
    end the process. ``refusal`` is the kubelet's last word as long as that is a no.
    """

    def __init__(
        self,
        endpoint: str,
        folder: str,
        on_change: Callable[[], None],
        on_end: Callable[[ExitError], None],
    ) -> None:
        self.offers = 0
        self.refusal = ""
        self._endpoint = endpoint
        self._folder = folder
        self._on_change = on_change
        self._on_end = on_end
        self._served: registration.Registration | None = None
        self._driver = Driver("", 0)
        self._is_in_place = False
        self._since = 0.0
        self._conflict = ""
        self._log = logs.get("registration")

    @property
    def offered(self) -> Offered | None:
        """What stands at present."""
        if self._served is None:
            return None
        said = self._served.status
        word = Word.NONE
        if said is not None:
            word = Word.REGISTERED if said.plugin_registered else Word.REFUSED
        return Offered(
            driver=self._driver,
            word=word,
            error=said.error if said is not None else "",
            is_in_place=self._is_in_place,
            age=time.monotonic() - self._since,
        )

    async def perform(self, action: Action, seen: Seen) -> None:
        """Carry out what was decided; raises OSError and ValueError if it cannot be done."""
        match action:
            case Offer(driver=driver):
                await self._offer(driver)
            case Withdraw(reason=reason):
                self._log.info("Taking the registration back", reason=reason)
                await self.withdraw()
            case GiveUp(reason=reason):
                self._on_end(ExitError(1, reason))

    async def withdraw(self) -> None:
        """Take the socket away; the kubelet forgets the driver."""
        served, self._served = self._served, None
        if served is not None:
            await served.stop(_STOP)

    async def watch(self) -> None:
        """Notice, until cancelled, when somebody removes or replaces the socket."""
        while True:
            await asyncio.sleep(INTERVAL)
            served = self._served
            if served is None:
                continue
            in_place = await served.is_in_place()
            if served is self._served and in_place != self._is_in_place:
                self._is_in_place = in_place
                self._on_change()

    async def _offer(self, driver: Driver) -> None:
        made = registration.Registration(
            driver.name, self._endpoint, on_status=self._heard, mode=names.SOCKET_MODE
        )
        try:
            path = await made.serve(self._folder)
        except OSError as error:
            if str(error) != self._conflict:
                self._conflict = str(error)
                self._log.warning("The registration cannot be offered", err=error)
            raise
        self._served, self._driver = made, driver
        self._is_in_place, self._since, self._conflict = True, time.monotonic(), ""
        self.offers += 1
        self._log.info("Offered to the kubelet", socket=path, endpoint=self._endpoint)

    async def _heard(self, status: registration.RegistrationStatus) -> None:
        no = status.error or "it gave no reason"
        self.refusal = "" if status.plugin_registered else no
        self._on_change()
