/** Spans of time that the page can show; each is kept by the nodes in steps of its own. */
export const RANGES = [
  { minutes: 5, stepS: 2, label: '5 min', words: 'last 5 min' },
  { minutes: 30, stepS: 10, label: '30 min', words: 'last 30 min' },
  { minutes: 60, stepS: 60, label: '1 h', words: 'last hour' },
] as const;

export type Range = (typeof RANGES)[number];
