"""Tools of Kafka that have nothing to do here: what they answer on a cluster with ZooKeeper."""
