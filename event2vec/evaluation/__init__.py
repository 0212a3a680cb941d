"""Accuracy, robustness and speed of a network, and figures of what it learnt."""
