"""Every option of broker and topic, declared once under Kafka's names."""
