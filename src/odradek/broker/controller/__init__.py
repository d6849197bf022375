"""The shell around the controller's state machine: election, store, requests to brokers."""
