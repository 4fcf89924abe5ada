import { readFileSync } from 'node:fs';

/** A soft limit of this process by its name in /proc/self/limits (Linux only). Infinity means unlimited. */
export function processLimit(name: string, proc = '/proc'): number | undefined {
  let limits: string;
  try {
    limits = readFileSync(`${proc}/self/limits`, 'utf8');
  } catch {
    return undefined;
  }
  const line = limits.split('\n').find((text) => text.startsWith(name));
  const value = line?.slice(name.length).trim().split(/\s+/)[0];
  if (value === undefined) return undefined;
  return value === 'unlimited' ? Number.POSITIVE_INFINITY : Number(value);
}
