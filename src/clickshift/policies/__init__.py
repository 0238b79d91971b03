"""Policies. `POLICIES` is the registry: error texts, command-line choices and test parameters come from it."""

POLICIES: dict[str, str] = {
    "Uniform": "clickshift.policies.scored:Uniform",
    "Feature": "clickshift.policies.scored:Feature",
    "BM25": "clickshift.policies.scored:BM25",
    "Oracle": "clickshift.policies.scored:Oracle",
    "NoisyOracle": "clickshift.policies.scored:NoisyOracle",
    "Reversed": "clickshift.policies.scored:Reversed",
    "LambdaMART": "clickshift.policies.lambdamart:LambdaMART",
    "PlackettLuce": "clickshift.policies.plackett_luce:PlackettLuce",
    "Placed": "clickshift.policies.placed:Placed",
}
