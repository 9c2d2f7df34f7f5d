"""The Container Storage Interface: messages, the connection to a driver, what failures mean.

``capabilities`` and ``failures`` are pure and light, so decisions may import them; ``v1``
loads the generated messages, ``driver`` the connection.
"""
