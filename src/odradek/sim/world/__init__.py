"""The simulated environment: event loop, network, disks, clocks, processes."""
