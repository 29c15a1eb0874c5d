"""What is best under the model: which pool computes what, and the proof that nothing is better."""
