import { createServer } from 'node:net';

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Waits until `condition` holds; rejects after ten seconds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const giveUpAt = performance.now() + 10_000;
  while (!(await condition())) {
    if (performance.now() > giveUpAt) throw new Error(`condition not met within 10 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Bytes that follow from `seed` alone, without short periods. */
export function content(seed: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let x = (seed * 2654435761 + 1) >>> 0;
  for (let i = 0; i < length; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    bytes[i] = x >>> 24;
  }
  return bytes;
}
