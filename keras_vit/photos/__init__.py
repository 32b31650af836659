"""Photos as images of a model: reading and preparing them, and the names of their classes."""
