"""Ids and vocabularies, frames, and inputs matched with annotations."""
