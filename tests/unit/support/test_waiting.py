"""How long tests wait, and which ports they are given."""

import socket

import pytest
from support import ports, waiting


def test_waits_are_patient_but_end_before_the_test_s_own_timeout(
    request: pytest.FixtureRequest,
) -> None:
    assert waiting.patient(15) == 15 * waiting.PATIENCE
    assert waiting.patient(100) == waiting.LONGEST_WAIT < float(request.config.getini("timeout"))
    assert waiting.patient(waiting.LONGEST_WAIT + 1) == waiting.LONGEST_WAIT + 1


def test_a_port_is_given_once_and_never_one_that_somebody_has() -> None:
    first = ports.free()
    with socket.create_server(("127.0.0.1", first + 1)):
        assert ports.free() not in {first, first + 1}
