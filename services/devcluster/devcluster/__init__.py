"""The cluster to develop and test on: an API server, its controllers and a node agent."""
