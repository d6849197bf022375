"""What a simulated cluster runs on: loop, network, disks, clocks, processes."""
