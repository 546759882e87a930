"""The bonus inside other people's trainers: one file per trainer, and an audit of any training loop."""
