"""`gear plan`: memory and time of a training step, by arithmetic. No model is loaded and nothing is run."""
