import type { MessagePort } from 'node:worker_threads';
import type { TcpLimits } from './limits.js';
import type { Registration } from './registrations.js';

/** What the serving thread is started with. */
export interface ServingSetup {
  /** Carries {@link ToServing} one way and {@link FromServing} the other. */
  readonly control: MessagePort;
  readonly counterMemory: SharedArrayBuffer;
  readonly host: string;
  readonly port: number;
  readonly limits: TcpLimits;
}

export type ToServing =
  | { readonly type: 'register'; readonly registration: Registration }
  | { readonly type: 'deregister'; readonly rkey: number }
  | { readonly type: 'close' };

export type FromServing =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'refused'; readonly message: string }
  | { readonly type: 'deregistered'; readonly rkey: number };
