"""Pictures of encodings: their numbers as panels, drawn as figures, SVG and text.

From outside: `atlas.page`, `canvas`, `curves`, `figure`, `look`, `show`, `svg`, `text`, `web`.
"""
