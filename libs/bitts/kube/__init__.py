"""Access to the Kubernetes API: typed reads, guarded writes, watches, events and leases.

``errors``, ``kinds``, ``objects``, ``patches``, ``quantity`` and ``selectors`` are pure;
``client`` and what stands on it (``reflector``, ``events``, ``leases``) do the talking.
"""
