/** Ages of pages, and classes of pages; a list is `class * STAGES + stage`. */
export const STAGES = 16;
export const CLASSES = 24;
const LISTS = CLASSES * STAGES;
const ONE = 2 ** 16;

/** The value of each list, by its hits, twice the pages at risk in it, and the weight of what is known of others. */
export function learnedValues(hits: readonly number[], risk: readonly number[], weight: number): number[] {
  const values: number[] = [];
  const sum = (of: readonly number[], stage: number, from: number, to: number): number =>
    of.reduce((total, value, i) => total + (i % STAGES === stage && i >= from && i < to ? value : 0), 0);
  for (let one = 0; one < CLASSES; one++) {
    const group = Math.floor(one / 4) * 4 * STAGES;
    const chances = Array.from({ length: STAGES }, (_, stage) => {
      const ofAll = Math.floor(((sum(hits, stage, 0, LISTS) + 2) * 2 * ONE) / (sum(risk, stage, 0, LISTS) + 40));
      const groupHits = sum(hits, stage, group, group + 4 * STAGES);
      const groupRisk = sum(risk, stage, group, group + 4 * STAGES);
      const prior = Math.floor((groupHits * 2 * ONE + 2 * weight * ofAll) / (groupRisk + 2 * weight));
      const i = one * STAGES + stage;
      return Math.floor((at(hits, i) * 2 * ONE + 2 * weight * prior) / (at(risk, i) + 2 * weight));
    });
    values.push(...valuesOf(chances));
  }
  // A page is of no use without the pages before it, which have more hits.
  for (let i = 8 * STAGES; i < LISTS; i++) {
    const isLast = Math.floor(i / STAGES / 4) % 2 === 1;
    if (!isLast) values[i] = Math.max(at(values, i), at(values, i - 8 * STAGES));
  }
  return values;
}

/** Best ratio of hits to quarter ticks from each stage on, as a fraction of 2^32. */
function valuesOf(chances: readonly number[]): number[] {
  const values: number[] = [];
  const spans: { gain: number; cost: number; alive: number }[] = [];
  for (let stage = STAGES - 1; stage >= 0; stage--) {
    const chance = at(chances, stage);
    const quarterTicks = stage === 0 ? 2 : 3 * 2 ** stage;
    let span = { gain: chance, cost: quarterTicks * (ONE - half(chance)), alive: ONE - chance };
    for (
      let next = spans.at(-1);
      next !== undefined && next.gain * span.cost > span.gain * next.cost;
      next = spans.at(-1)
    ) {
      span = {
        gain: span.gain + Math.floor((span.alive * next.gain) / ONE),
        cost: span.cost + Math.floor((span.alive * next.cost) / ONE),
        alive: Math.floor((span.alive * next.alive) / ONE),
      };
      spans.pop();
    }
    spans.push(span);
    values[stage] = Math.floor((span.gain * 2 ** 32) / span.cost);
  }
  return values;
}

export function half(value: number): number {
  return Math.floor(value / 2);
}

function at<T>(values: readonly T[], index: number): T {
  return values[index] as T;
}
