import type { Environment } from '../../../base/environment/environment.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import type { TcpLimits } from '../protocol/limits.js';
import { type RenewedCredentials, renew, type ThreadReport, type ThreadSetup } from '../threads/thread-messages.js';
import { ReadPeers } from './read-peers.js';
import { type PackedRequest, ReadBatch, ReadCounters, ReadRequest } from './read-request.js';

/** Start data of a reading thread, which then receives {@link ToReading} and sends {@link FromReading}. */
export interface ReadingSetup extends ThreadSetup {
  readonly counterMemory: SharedArrayBuffer;
  readonly limits: TcpLimits;
}

export type ToReading =
  | {
      readonly type: 'read';
      /** Number of the read, which its end repeats. */
      readonly id: number;
      readonly endpoint: string;
      readonly requests: readonly PackedRequest[];
    }
  | { readonly type: 'abort'; readonly id: number }
  | RenewedCredentials
  | { readonly type: 'close' };

export type FromReading =
  | {
      readonly type: 'ended';
      readonly id: number;
      /** One element for each operation, in order: 1 if it was read. */
      readonly isRead: Uint8Array;
      /** Values of `Gone` for the operations. */
      readonly gone: Uint8Array;
    }
  | { readonly type: 'turned'; readonly endpoint: string; readonly isReachable: boolean }
  | ThreadReport;

/**
 * The program of a reading thread: it has connections of its own, receives pages into memory that it shares with the
 * other threads, and verifies them. A read is reported ended when nothing of this thread writes into its memory any
 * more. Resolves when the thread has ended, on request or because the other side closed `messages`.
 */
export function readOnThread(setup: ReadingSetup, messages: MessageEnd, env: Environment): Promise<void> {
  const send = (message: FromReading): void => messages.post(message);
  const reads = new Map<number, { readonly endpoint: string; readonly batch: ReadBatch }>();
  const peers = new ReadPeers(new ReadCounters(setup.counterMemory), setup.limits, env, (endpoint, isReachable) =>
    send({ type: 'turned', endpoint, isReachable }),
  );

  async function read(id: number, endpoint: string, packed: readonly PackedRequest[]): Promise<void> {
    const opCount = packed.reduce((sum, request) => sum + ReadRequest.opCountOf(request), 0);
    const gone = new Uint8Array(opCount);
    const batch = new ReadBatch(opCount, gone);
    let firstIndex = 0;
    const requests = packed.map((request) => {
      const unpacked = ReadRequest.unpack(batch, firstIndex, request);
      firstIndex += unpacked.opCount;
      return unpacked;
    });
    reads.set(id, { endpoint, batch });
    peers.submit(endpoint, requests);
    const results = await batch.done;
    reads.delete(id);
    send({ type: 'ended', id, isRead: Uint8Array.from(results, Number), gone });
  }

  messages.onMessage((given) => {
    const message = given as ToReading;
    if (message.type === 'read') {
      void read(message.id, message.endpoint, message.requests);
    } else if (message.type === 'abort') {
      const aborted = reads.get(message.id);
      if (aborted !== undefined) peers.abort(aborted.endpoint, aborted.batch);
    } else if (message.type === 'credentials') {
      renew(message, env);
    } else {
      messages.close();
    }
  });
  return new Promise((resolve) => {
    messages.onClose(() => {
      peers.close();
      resolve();
    });
  });
}
