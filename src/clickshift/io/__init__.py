"""Readers: from the files that logs and judgments come in to Sessions, Corpus and Judgments."""
