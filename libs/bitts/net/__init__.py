"""Links, addresses, routes, rule sets and namespaces of Linux, over hand-packed netlink."""
