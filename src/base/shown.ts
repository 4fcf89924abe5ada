/**
 * A value of any kind as a message shows it. Never throws: `String()` does for objects whose `toString` is no function, and a peer's
 * message or a file can bring such a one.
 */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 100 ? `${value.slice(0, 100)}…` : value);
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  return Array.isArray(value) ? 'a list' : 'an object';
}
