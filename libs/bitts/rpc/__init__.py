"""gRPC over unix sockets: one wrapper around grpclib, with no knowledge of CSI.

``codes`` and ``stubs`` are light and pure; ``channel`` and ``server`` bring grpclib.
"""
