"""A DHCP client (RFC 2131, IPv4) for the links of containers."""
