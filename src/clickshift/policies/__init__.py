"""Policies. `POLICIES` is the registry: error texts, command-line choices and test parameters come from it."""

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
