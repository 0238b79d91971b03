"""Robustness of click models to policy shift (Deffayet et al. 2022).

`protocol` holds the experiment (`PolicyShift`), `derived_policies` the evaluation of the policies that each click model
implies (`DerivedPolicies`). The modules are imported one by one, so that importing the package costs nothing.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

__all__ = ["derived_policies", "protocol"]  # noqa: F822 (modules)
