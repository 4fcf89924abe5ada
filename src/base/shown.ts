/**
 * Formats any value for a message. Never throws, unlike `String()`, which throws for objects whose `toString` is not a
 * function; such an object may come from a peer or a file.
 */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 100 ? `${value.slice(0, 100)}…` : value);
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  return Array.isArray(value) ? 'a list' : 'an object';
}
