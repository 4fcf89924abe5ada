/** Mistakes that can be planted, one for each thing that a session has to get right. */
export const MISTAKES = [
  'acknowledged when sent',
  'list leaves a page out',
  'list leaves notes out',
  'heard before drops',
  'heard before changes',
  'forgotten not carried over',
  'forgotten not noted',
  'forgotten without a new list',
  'complete without a member',
  'kept pages are read at once',
  'kept pages ask one owner',
  'compared by no owner',
  'copies count without an original',
  'cleared not carried over',
  'cleared not remembered',
  'drops told to nobody',
  'delete without holders',
  'new owner keeps its sessions',
  'what is lost is not told again',
  'computed pages leave named ones',
  'computed pages replace each other',
] as const;

export type Mistake = (typeof MISTAKES)[number];
