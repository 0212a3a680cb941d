"""Studies of trained networks: the paper's tables, figures of runs, and a report page about a run."""
