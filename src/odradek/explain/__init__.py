"""The sentences of `odradek why` and the findings of the doctor, from the brokers' reports."""
