"""The command line: `odradek`, its subcommands, and Kafka's tools."""
