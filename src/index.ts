/** The public Node API, in three tiers: how far a program may rely on each export is said at the head of its module. */
export * from './exports/advanced.js';
export * from './exports/internal.js';
export * from './exports/stable.js';
