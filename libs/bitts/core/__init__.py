"""What every service needs whatever it talks to: flags, logs, metrics, queues, the one loop.

Standard library only, except prometheus_client in ``metrics`` and aiohttp in ``serving``.
"""
