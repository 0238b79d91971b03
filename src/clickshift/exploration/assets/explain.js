"use strict";
// Why a model prefers one document to another: sentences with numbers, from the facts of both.

const percent = (value, digits = 1) => (known(value) ? `${(100 * value).toFixed(digits)} %` : "–");
const count = (value) => (known(value) ? Math.round(value).toLocaleString("en") : "–");
const decimal = (value, digits = 3) => (known(value) ? value.toFixed(digits) : "–");
const interval = (low, high, digits = 3) => (known(low) ? `[${decimal(low, digits)}, ${decimal(high, digits)}]` : "");

const perExamination = (document) => (document.examined > 0 ? document.clicks / document.examined : null);
const overlap = (x, y) => known(x.low) && known(y.low) && x.low <= y.high && y.low <= x.high;

/** Positions of documents, the most relevant first; those whose relevance the log does not identify come last. */
function byRelevance(documents, positions) {
  const unknown = (one) => (one.support === "not identified" ? 1 : 0);
  return [...positions].sort((i, j) => unknown(documents[i]) - unknown(documents[j])
    || (documents[j].relevance ?? 0) - (documents[i].relevance ?? 0));
}

/** The pair to explain first: the one whose raw and corrected order differ most clearly; else the two best. */
function mostSurprising(documents) {
  const ranked = byRelevance(documents, documents.map((_, i) => i));
  const ordinary = [ranked[0], ranked[1] ?? ranked[0]];
  let [best, gap] = [null, 0];
  const few = ranked.filter((i) => documents[i].support !== "not identified").slice(0, 40);
  few.forEach((i, k) => {
    for (const j of few.slice(k + 1)) {
      const [x, y] = [documents[i], documents[j]];
      const weight = (overlap(x, y) ? 0.01 : 1) * Math.sqrt(Math.min(x.impressions, y.impressions));
      const size = (x.relevance - y.relevance) * (y.ctr - x.ctr) * weight;
      if (size > gap) [best, gap] = [[i, j], size];
    }
  });
  return best ?? ordinary;
}

/** Ranks at which both documents were shown. */
function sharedRanks(x, y) {
  const ranks = new Set(y.by_rank.map(([rank]) => rank));
  return x.by_rank.map(([rank]) => rank).filter((rank) => ranks.has(rank));
}

/** Click-through rates of two documents at the ranks where both were shown, with equal weights (Mantel and Haenszel
 * 1959), the sum of the weights n m / (n + m), and the standard error of the difference. */
function atSameRanks(x, y) {
  const variance = (p, n) => (p * (1 - p)) / n;
  const other = new Map(y.by_rank.map(([rank, shown, clicks]) => [rank, [shown, clicks]]));
  let [left, right, total, error] = [0, 0, 0, 0];
  for (const [rank, shown, clicks] of x.by_rank) {
    if (!other.has(rank)) continue;
    const [theirs, their] = other.get(rank);
    const weight = (shown * theirs) / (shown + theirs);
    left += (weight * clicks) / shown;
    right += (weight * their) / theirs;
    total += weight;
    error += weight ** 2 * (variance((clicks + 0.5) / (shown + 1), shown) + variance((their + 0.5) / (theirs + 1), theirs));
  }
  return [left / total, right / total, total, Math.sqrt(error) / total];
}

/** Whether examination compares the ranks of two documents: some rank of each is in the same connected group. */
function connected(x, y, groups) {
  const of = (document) => new Set(document.by_rank.map(([rank]) => groups[rank - 1]));
  const other = of(y);
  return [...of(x)].some((group) => other.has(group));
}

/** Explain an order: {title, sentences, verdict}. The first of the two is the one that the model prefers. */
function explain(x, y, model, groups) {
  const [name, ctr] = [(d) => `“${d.doc}”`, (d) => `${percent(d.ctr)} (${count(d.clicks)} of ${count(d.impressions)})`];
  const sentences = [];
  const raw = x.ctr === y.ctr ? "are equal" : x.ctr > y.ctr ? "agree with this order" : "say the opposite";
  sentences.push(`Raw click-through rates ${raw}: ${ctr(x)} for ${name(x)}, ${ctr(y)} for ${name(y)}.`);
  if (known(x.examined) && known(y.examined)) {
    const share = (d) => percent(d.examined / d.impressions, 0);
    const seen = (d) => `at rank ${decimal(d.mean_rank, 1)} on average and was examined about ${count(d.examined)} times, in ${share(d)} of its impressions`;
    sentences.push(`${name(x)} was shown ${seen(x)}; ${name(y)} ${seen(y)}.`);
    sentences.push(`Clicks per examination are ${decimal(perExamination(x))} and ${decimal(perExamination(y))}.`);
  } else {
    sentences.push(`Their mean ranks are ${decimal(x.mean_rank, 1)} and ${decimal(y.mean_rank, 1)}; ${model.label} has no examination to correct them by.`);
  }
  if (x.parameters.satisfaction) {
    const parts = (d) => `${decimal(d.parameters.attractiveness[0])} × ${decimal(d.parameters.satisfaction[0])}`;
    sentences.push(`Relevance is attractiveness × satisfaction: ${parts(x)} and ${parts(y)}.`);
  }
  const estimate = (d) => `${decimal(d.relevance)} ${interval(d.low, d.high)}`.trim();
  let verdict = "unclear";
  let last = `${model.label} estimates ${model.relevance} of ${estimate(x)} and ${estimate(y)}`;
  if (!known(x.low) || !known(y.low)) last += "; it has no intervals, so chance is not excluded.";
  else if (overlap(x, y)) last += ": the 95 % intervals overlap, so the log does not settle which is better.";
  else {
    verdict = "clear";
    last += ": the 95 % intervals do not overlap, so chance alone does not explain this order.";
  }
  sentences.push(last);
  const lacks = [];
  for (const d of [x, y]) {
    if (d.support === "prior") lacks.push(`${name(d)} has few clicks (${count(d.clicks)}): its estimate is pulled towards the prior`);
    if (d.support === "not identified") lacks.push(`the log does not identify ${model.relevance} of ${name(d)}`);
    if (d.support === "" && d.impressions < 20) lacks.push(`${name(d)} was shown only ${count(d.impressions)} times`);
  }
  const ranks = sharedRanks(x, y);
  if (!connected(x, y, groups)) {
    lacks.push("their ranks are not connected by any document of the log, so the order rests on assumptions");
    verdict = "unclear";
  } else if (!ranks.length) {
    lacks.push("they were never shown at the same rank, so their comparison rests on the examination of different ranks");
  } else {
    const at = ranks.length > 3 ? `${ranks.length} ranks` : `rank${ranks.length > 1 ? "s" : ""} ${ranks.join(", ")}`;
    const [left, right, swaps, error] = atSameRanks(x, y);
    const against = right - left > 1.96 * error;
    const check = against ? "which speaks against the model" : left - right > 1.96 * error ? "which agrees with the model" : "no clear difference";
    if (against) verdict = "unclear";
    sentences.push(`A check without a model: at the ${at} where both were shown, and weighted alike, raw click-through rates are ${percent(left)} and ${percent(right)} (${count(swaps)} effective swaps), ${check}.`);
  }
  if (lacks.length) sentences.push(`What the log lacks: ${lacks.join("; ")}.`);
  return { title: `${model.label} prefers ${name(x)} to ${name(y)}`, sentences, verdict };
}
