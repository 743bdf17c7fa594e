"""Encodings that depend on the content: gates, rotations and reflections from a layer's input; networks over scores."""
