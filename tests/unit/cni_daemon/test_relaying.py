"""How many rules each chain must have, read from the scripts that were laid."""

from bitts.cni import results
from bitts.cni.results import Ip
from cni_daemon import relaying
from cni_daemon.model import Observed
from cni_daemon.operations import ApplyRules, Simple
from cni_daemon.plugins import masquerade, portrules, spoofing


def laid(*scripts: str) -> dict[str, tuple[Simple, ...]]:
    return {str(n): (ApplyRules(script),) for n, script in enumerate(scripts)}


def test_the_last_script_that_writes_a_chain_counts() -> None:
    first = "add rule inet bitts_cni a one\nadd rule inet bitts_cni a two\n"
    again = "flush chain inet bitts_cni a\nadd rule inet bitts_cni a other\n"
    beside = "add rule bridge bitts_cni a guard\nadd rule inet somebody a not ours\n"
    assert relaying.expected(laid(first, again, beside)) == {("inet", "a"): 1, ("bridge", "a"): 1}


def test_every_chain_that_plugins_lay_is_counted() -> None:
    ips = [Ip(results.parse_interface(each)) for each in ("10.1.0.2/16", "fd00::2/64")]
    foundation = [
        *masquerade.foundation(ips, "", Observed()),
        *spoofing.foundation(Observed()),
        portrules.base(portrules.USUAL),
        portrules.subnet(ips[0].address),
    ]
    found = relaying.expected({each.key: each.operations for each in foundation})
    assert {chain: count for (_, chain), count in found.items()} == {
        "postrouting": 2, "masq_10_1_0_0_16": 2, "masq_fd00--_64": 2, "prerouting": 1,
        "hairpin_all": 1, "hostports": 6, "portmap_prerouting": 2, "portmap_output": 2,
        "portmap_postrouting": 2, "hairpin_10_1_0_0_16": 1,
    }  # fmt: skip
    assert ("bridge", "prerouting") in found
