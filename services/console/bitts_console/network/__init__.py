"""``bitts demo --network``: two containers on a network that ``cni-daemon`` makes."""
