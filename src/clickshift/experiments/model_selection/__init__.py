"""Selection of a click model by debiasedness before a new policy is deployed (Deffayet et al. 2023).

`protocol` holds the experiment (`ModelSelection`), `strategies` the rules that choose a model, `regret` what each rule
costs, and `r2` how well metrics of the training log predict out-of-distribution perplexity. The modules are imported
one by one, so that importing the package costs nothing.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

__all__ = ["protocol", "r2", "regret", "strategies"]  # noqa: F822 (modules)
