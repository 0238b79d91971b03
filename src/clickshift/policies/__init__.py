"""Ranking policies: rankers as probability distributions over the lists of each query.

`POLICIES` is the registry of policies that can be named in a specification such as
"PlackettLuce(Oracle, temperature=0.1)". Error messages, command-line choices and test parameters are generated from it.
"""

__all__ = [  # noqa: F822 (modules)
    "POLICIES",
    "base",
    "basic",
    "birkhoff",
    "by_exposure",
    "derived",
    "lambdamart",
    "plackett_luce",
]

POLICIES: dict[str, str] = {
    "Uniform": "clickshift.policies.basic:Uniform",
    "Feature": "clickshift.policies.basic:Feature",
    "BM25": "clickshift.policies.basic:BM25",
    "Oracle": "clickshift.policies.basic:Oracle",
    "NoisyOracle": "clickshift.policies.basic:NoisyOracle",
    "Reversed": "clickshift.policies.basic:Reversed",
    "LambdaMART": "clickshift.policies.lambdamart:LambdaMART",
    "PlackettLuce": "clickshift.policies.plackett_luce:PlackettLuce",
    "Placed": "clickshift.policies.by_exposure:Placed",
}
