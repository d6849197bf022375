"""Plans for any Kafka cluster: number of partitions, replica placement, reassignments; the doctor.

Pure rules on values; the modules that access a cluster are shells:

    cluster        a snapshot of brokers, racks, replicas and sizes
    movement       which replicas move, as a small optimisation problem
    move_risks     which reassignments of a plan are risky, or may never complete
    assignment     the assignment of a new topic, and what the failure of each broker leaves
    keys           how real keys are distributed over partitions, and which would change partition
    doctor         what is wrong now, each with the command that fixes it
    collect        collects what the rules need from a cluster           a shell
    execute        executes a plan in batches, under a throttle          a shell
    measure        measures writes and reads on a topic of its own       a shell

The number of partitions needed and their cost are in `odradek.placement.sizing`.
"""
