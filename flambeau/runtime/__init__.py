"""The running process: settings from the environment, devices, threads, profiler."""
