"""What an encoding looks like: the numbers, their text, their figure.

From outside: `atlas.page`, `canvas`, `curves`, `figure`, `look`, `show`, `svg`, `text`, `web`.
"""
