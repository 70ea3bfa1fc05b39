"""Benchmarks: the paper's families of models and published figures, a runner that survives interruption, reports."""
