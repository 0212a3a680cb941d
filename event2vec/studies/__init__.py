"""Trained networks set side by side or looked at whole: tables of the paper, one page about a run."""
