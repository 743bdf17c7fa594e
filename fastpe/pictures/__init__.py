"""What an encoding looks like: the numbers, their text, their figure.

From outside: `canvas`, `curves`, `figure`, `look`, `show`, `text`.
"""
