"""Metrics: how well a model predicts clicks and ranks documents."""

from clickshift.metrics.clicks import Perplexity as Perplexity
from clickshift.metrics.clicks import click_bits as click_bits
from clickshift.metrics.clicks import log_likelihood_per_session as log_likelihood_per_session
from clickshift.metrics.clicks import perplexity as perplexity
from clickshift.metrics.clicks import perplexity_of as perplexity_of
