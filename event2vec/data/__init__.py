"""Recordings on disk and in batches: data sets, stores, sampling, what training reads."""
