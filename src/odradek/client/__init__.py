"""Client side of Kafka's protocol: connections, metadata, producer, consumer, admin requests.

Imports no broker code.
"""
