"""Pictures of encodings. Their numbers become panels, which are drawn as figures, SVG or text.

From outside: `atlas.page`, `canvas`, `curves`, `figure`, `look`, `mathml`, `show`, `svg`, `text`, `web`.
"""
