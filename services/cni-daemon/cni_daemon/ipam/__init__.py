"""Address management: the IPAM plugins that the daemon serves, by name."""
