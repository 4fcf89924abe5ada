import { BodyReader, BodyWriter } from './body.js';
import type { Received } from './messages.js';

/** Body of PIN. */
export interface PinRequest {
  readonly pool: string;
  /** Milliseconds. */
  readonly forMs: number;
  readonly keys: string[];
}

export function encodePin({ pool, forMs, keys }: PinRequest): Buffer {
  return new BodyWriter(64 + 70 * keys.length).text16(pool).u32(forMs).keys(keys).done();
}

export function decodePin(body: Buffer, maxKeys: number): Received<PinRequest> {
  const reader = new BodyReader(body);
  const request = { pool: reader.text16(), forMs: reader.u32(), keys: reader.keys(maxKeys) };
  reader.end();
  return request;
}
