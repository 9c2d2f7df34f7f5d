import sys
sys.path.insert(0,'/work/main/tests/net')
from test_portmap import *
def test_dbg(daemon, namespaces):
    pod, outside = namespaces.make("pod"), namespaces.make("out")
    netns.run(daemon.host, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", outside.rsplit("/", 1)[1])  # fmt: skip
    for place, name, number in ((daemon.host, "uplink", 1), (outside, "eth0", 2)):
        netns.run(place, "ip", "addr", "add", f"192.0.2.{number}/24", "dev", name)
        netns.run(place, "ip", "addr", "add", f"2001:db8::{number}/64", "dev", name, "nodad")
        netns.run(place, "ip", "link", "set", name, "up")
    chain(daemon, mapping(8080)).add(pod)
    with serving(pod):
        print(reached(outside, "192.0.2.1", 8080))
        print(reached(outside, "2001:db8::1", 8080))
        print(reached(daemon.host, "10.88.0.2", 80))
        print(reached(daemon.host, "fd00:88::2", 80))
        print(netns.run(daemon.host,"conntrack","-L"))
        print(netns.run(daemon.host,"conntrack","-L", "-f", "ipv6"))
        print(netns.run(daemon.host,"sh","-c","cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/*/forwarding; ip r; ip -6 r; ip a;"))
        print(netns.run(pod,"sh","-c","ip r; ip -6 r; ip a; ping -6 -c 1 -w 1 2001:db8::2",check=False))
    assert 0
