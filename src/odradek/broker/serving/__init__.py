"""From a frame to its handler and back: requests, sessions, waiting, time."""
