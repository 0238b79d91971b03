"use strict";
// Click models: marginal click probabilities of a list and their 95 % intervals, as clickshift.models computes them.
// A document has `parameters`: {attractiveness: [value, standard error of its logit], ...}.

const STEP = 1e-5; // of the finite differences, as in models/perturb.py
const LOGIT_LIMIT = 30;

const atRank = (table, rank) => table[Math.min(rank, table.length - 1)];

/** P(the next result is examined | this one was clicked), for a document with parameters `p` at a rank. */
const FOLLOW_CLICK = {
  CM: () => 0,
  SDBN: (p) => 1 - p.satisfaction,
  DBN: (p, shared) => shared.continuation[0] * (1 - p.satisfaction),
  DCM: (p, shared, rank) => atRank(shared.continuation, rank),
  CCM: (p, { continuation: [, irrelevant, relevant] }) =>
    irrelevant * (1 - p.attractiveness) + relevant * p.attractiveness,
};
const FOLLOW_SKIP = { DBN: (shared) => shared.continuation[0], CCM: (shared) => shared.continuation[0] };

/** Forward recursion of a cascade over the state of the user. */
function cascade(name, list, shared) {
  const followSkip = FOLLOW_SKIP[name] ? FOLLOW_SKIP[name](shared) : 1;
  let [afterClick, examining] = [0, 1];
  return list.map((p, rank) => {
    const clicked = examining * p.attractiveness + afterClick * p.attractiveness;
    const skipped = examining * (1 - p.attractiveness) + afterClick * (1 - p.attractiveness);
    afterClick = clicked * FOLLOW_CLICK[name](p, shared, rank);
    examining = skipped * followSkip;
    return clicked;
  });
}

/** Forward recursion of UBM over the rank of the last click, from 1; 0 is none. */
function userBrowsing(list, { examination }) {
  const knownRanks = Math.floor(Math.sqrt(2 * examination.length));
  const last = [1];
  return list.map((p, rank) => {
    const known = Math.min(rank, knownRanks - 1);
    let total = 0;
    for (let l = 0; l <= rank; l++) {
      const situation = (known * (known + 1)) / 2 + (l === 0 ? 0 : Math.max(l - (rank - known), 1));
      const clicked = last[l] * examination[Math.min(situation, examination.length - 1)] * p.attractiveness;
      last[l] -= clicked;
      total += clicked;
    }
    last.push(total);
    return total;
  });
}

/** Marginal click probability of each result of a list. */
function clickProbabilities(name, list, shared) {
  if (name === "PBM") return list.map((p, rank) => p.attractiveness * atRank(shared.examination, rank));
  return name === "UBM" ? userBrowsing(list, shared) : cascade(name, list, shared);
}

const shiftLogit = (p, by) => {
  if (by === 0) return p;
  const logit = Math.min(Math.max(Math.log(p / (1 - p)), -LOGIT_LIMIT), LOGIT_LIMIT) + by;
  return 1 / (1 + Math.exp(-logit));
};

/** Changes of all click probabilities by one standard error of one parameter, for every parameter with an error. */
function sensitivities(model, documents, list, shared) {
  const base = clickProbabilities(model.name, list, shared);
  const change = (moved, movedShared) =>
    clickProbabilities(model.name, moved, movedShared).map((p, rank) => (p - base[rank]) / STEP);
  const found = [];
  for (const table of model.tables) {
    documents.forEach((document, k) => {
      const error = document.parameters[table][1] ?? NaN;
      const moved = list.map((p, i) => (i === k ? { ...p, [table]: shiftLogit(p[table], STEP * error) } : p));
      found.push(change(moved, shared));
    });
  }
  for (const [name, { error }] of Object.entries(model.shared)) {
    (error ?? []).forEach((e, k) => {
      if (!(e > 0)) return; // 0: fixed by convention; null: the situation never occurred
      const values = shared[name].map((value, i) => (i === k ? shiftLogit(value, STEP * e) : value));
      found.push(change(list, { ...shared, [name]: values }));
    });
  }
  return found;
}

/** Predict a list: click probabilities and expected clicks, each with its interval, by the delta method. */
function predictList(model, documents) {
  const list = documents.map((document) =>
    Object.fromEntries(Object.entries(document.parameters).map(([name, [value]]) => [name, value])));
  const shared = Object.fromEntries(Object.entries(model.shared).map(([name, { value }]) => [name, value]));
  const probability = clickProbabilities(model.name, list, shared);
  const changes = model.has_errors ? sensitivities(model, documents, list, shared) : [];
  const error = probability.map((_, rank) =>
    model.has_errors ? Math.sqrt(changes.reduce((sum, change) => sum + change[rank] ** 2, 0)) : NaN);
  const totals = changes.map((change) => change.reduce((a, b) => a + b, 0));
  const totalError = model.has_errors ? Math.sqrt(totals.reduce((sum, total) => sum + total ** 2, 0)) : NaN;
  const expected = probability.reduce((a, b) => a + b, 0);
  const intervals = probability.map((p, rank) => betaInterval(p, error[rank]));
  const [low, high] = betaInterval(expected / list.length, totalError / list.length);
  return {
    click_prob: probability, low: intervals.map(([l]) => l), high: intervals.map(([, h]) => h),
    expected_clicks: expected, expected_low: low === null ? null : low * list.length,
    expected_high: high === null ? null : high * list.length,
  };
}

/** 95 % interval of a probability with a standard error: quantiles of the Beta distribution with this information. */
function betaInterval(p, error) {
  const inside = Math.min(Math.max(p, 1e-12), 1 - 1e-12);
  const information = error / (inside * (1 - inside)); // standard error of the logit
  if (Number.isNaN(information)) return [null, null];
  if (information === 0) return [p, p];
  const trials = Math.min(Math.max(1 / (information ** 2 * inside * (1 - inside)), 1e-6), 1e15);
  return [0.025, 0.975].map((q) => betaQuantile(q, trials * inside, trials * (1 - inside)));
}

/** Quantile of a Beta distribution, by bisection between bounds that Cantelli's inequality gives. */
function betaQuantile(q, a, b) {
  const mean = a / (a + b);
  const deviation = Math.sqrt((mean * (1 - mean)) / (a + b + 1));
  if (a + b > 1e8 && Math.min(a, b) > 1e4) return mean + (q < 0.5 ? -1 : 1) * 1.959963984540054 * deviation;
  let [low, high] = [Math.max(mean - 7 * deviation, 0), Math.min(mean + 7 * deviation, 1)];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (incompleteBeta(middle, a, b) < q) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** Regularised incomplete beta function, by its continued fraction (modified Lentz). */
function incompleteBeta(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
  return x < (a + 1) / (a + b + 2) ? (front * fraction(x, a, b)) / a : 1 - (front * fraction(1 - x, b, a)) / b;
}

function fraction(x, a, b) {
  const away = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
  let [c, d] = [1, 1 / away(1 - ((a + b) * x) / (a + 1))];
  let value = d;
  for (let m = 1; m < 20000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    value *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    value *= d * c;
    if (Math.abs(d * c - 1) < 1e-14) break;
  }
  return value;
}

const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

function logGamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.abs(Math.sin(Math.PI * x))) - logGamma(1 - x);
  const shifted = x - 1;
  const sum = LANCZOS.slice(1).reduce((total, value, i) => total + value / (shifted + i + 1), LANCZOS[0]);
  const t = shifted + 7.5;
  return 0.5 * Math.log(2 * Math.PI) + (shifted + 0.5) * Math.log(t) - t + Math.log(sum);
}
