/** A family of metrics as OpenMetrics writes it. */
interface Family {
  type?: string;
  help?: string;
  readonly samples: Map<string, number>;
}

const NAME = '[a-zA-Z_][a-zA-Z0-9_]*';
const QUOTED = '(?:[^"\\\\\\n]|\\\\[\\\\n"])*';
const METADATA = new RegExp(`^# (TYPE|HELP) (${NAME}) (${QUOTED})$`);
const SAMPLE = new RegExp(
  `^(${NAME})(\\{${NAME}="${QUOTED}"(?:,${NAME}="${QUOTED}")*\\})? (NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)$`,
  'i',
);
/** Suffixes of the samples' names for each type of family. */
const SUFFIXES: Readonly<Record<string, readonly string[]>> = {
  counter: ['_total'],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count'],
};

/**
 * Parses a text as strictly as the standard: metadata before samples, one family after the other, each sample once and
 * named as its type demands, buckets that grow, the end. Throws with the first error.
 */
export function parseOpenMetrics(text: string): ReadonlyMap<string, Family> {
  if (!text.endsWith('\n# EOF\n')) throw new Error('does not end with # EOF');
  const families = new Map<string, Family>();
  let name = '';
  let family: Family = { samples: new Map() };
  for (const line of text.slice(0, -'# EOF\n'.length).trimEnd().split('\n')) {
    const [, keyword, described, value = ''] = METADATA.exec(line) ?? [];
    if (described !== undefined && keyword !== undefined) {
      if (described !== name) {
        if (families.has(described)) throw new Error(`family ${described} comes twice`);
        name = described;
        family = { samples: new Map() };
        families.set(name, family);
      }
      const field = keyword === 'TYPE' ? 'type' : 'help';
      if (family[field] !== undefined || family.samples.size > 0) throw new Error(`misplaced: ${line}`);
      family[field] = value;
      continue;
    }
    const [, sampleName, labels = '', number] = SAMPLE.exec(line) ?? [];
    if (sampleName === undefined) throw new Error(`neither metadata nor a sample: ${line}`);
    const suffixes = SUFFIXES[family.type ?? ''] ?? [];
    if (!suffixes.some((suffix) => sampleName === name + suffix)) throw new Error(`${line}: not of ${name}`);
    if (family.samples.has(sampleName + labels)) throw new Error(`twice: ${line}`);
    family.samples.set(sampleName + labels, Number(number));
  }
  for (const [familyName, { type, samples }] of families) {
    if (type === 'histogram') checkBuckets(familyName, samples);
    if (type === 'counter' && [...samples.values()].some((value) => !(value >= 0))) {
      throw new Error(`${familyName}: a counter below 0`);
    }
    for (const suffix of ['_total', '_bucket', '_sum', '_count']) {
      if (families.has(familyName + suffix))
        throw new Error(`${familyName + suffix}: may be a sample of ${familyName}`);
    }
  }
  return families;
}

/** Checks the buckets: in the order of their bounds, up to infinity, whose count is that of all. */
function checkBuckets(name: string, samples: ReadonlyMap<string, number>): void {
  let last = { bound: Number.NEGATIVE_INFINITY, count: 0 };
  for (const [key, count] of samples) {
    const bound = /le="([^"]*)"/.exec(key)?.[1];
    if (!key.startsWith(`${name}_bucket`) || bound === undefined) continue;
    const next = { bound: bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound), count };
    if (next.bound <= last.bound || next.count < last.count) throw new Error(`buckets of ${name} fall at ${key}`);
    last = next;
    if (next.bound < Number.POSITIVE_INFINITY) continue;
    const total = key.replace('_bucket', '_count').replace('le="+Inf",', '').replace('{le="+Inf"}', '');
    if (samples.get(total) !== count) throw new Error(`${total} is not that of ${key}`);
    last = { bound: Number.NEGATIVE_INFINITY, count: 0 };
  }
}
