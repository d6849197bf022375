"""A broker's files read where they lie, without a broker: rows out, nothing ever written.

    from odradek.files.segments import batches
    from odradek.files.internal_topics import group_rows, transaction_rows
    from odradek.files.examine import examine

    for batch in batches("data/orders-0/00000000000000000000.log"):
        for record in batch.records():
            ...
    for finding in examine("data/orders-0"):
        print(finding)

    segments           `.log`: batches and their records
    indexes            `.index`, `.timeindex`, `.txnindex`
    snapshots          `.snapshot`: what a partition knew of its producers
    checkpoints        offsets, leader epochs, `meta.properties`, `partition.metadata`
    internal_topics    `__consumer_offsets`, `__transaction_state`
    arrow              segments as Arrow tables (the extra `arrow`)
    examine            torn batches, gaps, damage, transactions that hang

Files are opened for reading and read piece by piece, so that they may be larger than memory, and
may belong to a broker that runs. It works on Apache Kafka's files as on ours.
"""
