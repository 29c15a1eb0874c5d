"""What a model is: layers of blocks, their weights, caches and formats; Hugging Face import; exact counts."""
