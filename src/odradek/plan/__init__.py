"""Plans for a cluster, any Kafka cluster: how many partitions, where replicas go, what to move.

Rules on values; what asks a cluster, or does something to it, is apart:

    cluster        a picture of brokers, racks, replicas and sizes
    movement       which replicas move, as a small optimisation problem
    caution        what a plan cannot help: what to know before it is carried out
    assignment     where a new topic's replicas would go, and what the loss of each broker leaves
    keys           how real keys spread over partitions, and who would change partition
    doctor         what is wrong now, each with the command that mends it
    collect        asks a cluster for what the others want to know          a shell
    execute        carries out a plan in batches, under a throttle          a shell
    measure        writes to and reads from a topic of its own, for figures a shell

How many partitions are needed, and what they cost, is `odradek.placement.sizing`.
"""
