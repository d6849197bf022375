"""Apache Kafka of the ZooKeeper era, in Python. Importing this costs nothing."""

__version__ = "0.1.0"
