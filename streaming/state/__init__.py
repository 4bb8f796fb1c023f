"""Durable state: what a circuit knows, in files that a crash at any moment leaves whole.

``files`` is the little that is asked of a file system; ``segment`` lays runs and tables out in
Arrow files; ``parts`` decides which of them are summed; ``manifest`` names all files of one batch
id, and those of ``cells``; ``store`` writes, finds and collects versions. Nothing here knows Spark.
"""
