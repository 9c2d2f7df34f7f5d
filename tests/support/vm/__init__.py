"""A test machine for what this machine's kernel lacks: Debian's kernel in an emulator.

It boots in seconds, with this machine's own root file system below an overlay, so that the
virtual environment, the tests and the built programs are simply there; nothing that it does
outlives it. ``python -m support.vm`` runs pytest in it.
"""
