"""The page: a web server that shows a Kafka cluster and what can be done with it."""
