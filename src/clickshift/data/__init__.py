"""Containers: vocabulary, rankings, sessions, encoded logs, corpora, judgments; validation; the built-in corpus."""
