import { SPLIT_GROUP_MIN_PAGES } from '../limits.js';

/**
 * How many of `count` pages that are asked for at once travel in the first message, when no other one is under way:
 * half of them if they are many. Two messages keep both sides at work, where one side would wait while the other one
 * works on a single message. At most `maxCount`.
 */
export function firstGroup(count: number, maxCount: number): number {
  return count < 2 * SPLIT_GROUP_MIN_PAGES ? maxCount : Math.min(maxCount, Math.ceil(count / 2));
}
