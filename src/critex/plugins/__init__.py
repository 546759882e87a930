"""The bonus in other libraries: one file per library, and an audit of any training loop."""
