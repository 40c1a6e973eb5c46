"""`gear compare`: methods × seeds on one task, equal compute, paired statistics, controls."""
