"""The machine that we run on: files and folders, processes and their locks, devices, threads, ports."""
