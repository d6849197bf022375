"""Faults of a broker on request: for the test kit and the laboratory of the page, never otherwise.

A broker has them only if it was started for them (`odradek server-start --faults SOCKET`, or in the
process of a test). They wrap what the broker gets from outside (`broker/world.py`): the network,
the coordination store, the clock. A broker without them runs no line of this package.
"""
