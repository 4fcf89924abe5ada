import { closeSync } from 'node:fs';
import type { Sharer } from '../base/concurrency/shares.js';
import type { Connection } from '../base/environment/network.js';
import { ArgumentError } from '../base/errors.js';
import {
  DESCRIPTOR_RECORD_MAX_BYTES,
  DESCRIPTOR_REPLY_MAX_BYTES,
  type DescriptorListenerStats,
  type NativeDescriptorListener,
  type NativeDescriptorRecord,
  type PeerCredentials,
} from './addon/contract.js';
import { loadNative } from './addon/loader.js';

export type { DescriptorListenerStats } from './addon/contract.js';

/** One record that a process has sent, and the descriptor that came with it. */
export interface DescriptorRecord {
  /** The record, `recordBytes` long. It belongs to the receiver. */
  readonly record: Uint8Array;
  /** The descriptor, which belongs to the receiver; -1 if there is none. */
  readonly fd: number;
  /** Process id of the peer when it connected, in this process's PID namespace; 0 if the peer is outside of it. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /**
   * Sends the answer of 1 to 256 bytes, and a copy of the descriptor `fd` if given (the caller keeps `fd`); then closes
   * the connection. Further calls, and calls after the connection has ended, do nothing.
   */
  reply(bytes: Uint8Array, fd?: number): void;
}

export interface DescriptorListenerOptions {
  /** Path of the socket file. The file of an earlier process must have been removed. */
  readonly path: string;
  /** Permission bits of the socket file. They are set before any process can connect. */
  readonly mode: number;
  /** Group of the file. Default: the group of the process. */
  readonly gid?: number;
  /** Length of each record, 1 to 4096. */
  readonly recordBytes: number;
  /** Most connections; further ones are closed at once. */
  readonly connectionsMaxCount: number;
  /** Time after which an accepted connection without an answer is closed. */
  readonly timeoutMs: number;
  /**
   * Called on this thread for each record. If it throws, the error becomes an uncaught exception. A process that
   * disconnects before it gets its answer may not be reported.
   */
  readonly onRecord: (record: DescriptorRecord) => void;
}

/**
 * A Unix socket for descriptors: each connection sends one record in one message, with or without a descriptor, and
 * gets one answer. Node's own sockets lose descriptors, so the addon implements this, on a separate thread.
 *
 * The listener does not keep the process alive. It is closed when the calling thread ends.
 */
export class DescriptorListener {
  readonly #listener: NativeDescriptorListener;
  readonly #onRecord: (record: DescriptorRecord) => void;
  #isClosed = false;

  /**
   * Starts to listen. Throws {@link ArgumentError} for invalid options and without the addon. Throws the addon's
   * `NativeFailure`, which has `call` and `errno`, if it cannot listen at the path.
   */
  static listen(options: DescriptorListenerOptions): DescriptorListener {
    return new DescriptorListener(options);
  }

  private constructor(options: DescriptorListenerOptions) {
    const { path, mode, gid, recordBytes, connectionsMaxCount, timeoutMs, onRecord } = options;
    checkWhole('mode', mode, 0, 0o777);
    if (gid !== undefined) checkWhole('gid', gid, 0, 2 ** 32 - 2);
    checkWhole('recordBytes', recordBytes, 1, DESCRIPTOR_RECORD_MAX_BYTES);
    checkWhole('connectionsMaxCount', connectionsMaxCount, 1, 2 ** 32 - 1);
    checkWhole('timeoutMs', timeoutMs, 1, 2 ** 31);
    const { addon, reason } = loadNative();
    if (addon === null) throw new ArgumentError(`DescriptorListener: descriptors need the native addon: ${reason}`);
    this.#onRecord = onRecord;
    const native = { path, mode, gid, recordBytes, connectionsMaxCount, timeoutMs };
    this.#listener = addon.createDescriptorListener(native, (records) => this.#arrived(records));
  }

  /** Counters since the start; after closing, the last values. */
  get stats(): DescriptorListenerStats {
    return this.#listener.stats();
  }

  /**
   * Closes all connections and the descriptors that were not handed to `onRecord`. Removes the socket file unless
   * another one has replaced it. Idempotent.
   */
  close(): void {
    this.#isClosed = true;
    this.#listener.close();
  }

  /** Passes on records. An error thrown for one record does not affect the others. */
  #arrived(records: readonly NativeDescriptorRecord[]): void {
    const failures: unknown[] = [];
    for (const record of records) {
      if (this.#isClosed) {
        if (record.fd >= 0) closeReceived(record.fd);
        continue;
      }
      try {
        this.#onRecord(this.#recordOf(record));
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  #recordOf({ connection, record, fd, pid, uid, gid }: NativeDescriptorRecord): DescriptorRecord {
    const reply = (bytes: Uint8Array, withFd?: number): void => {
      if (!(bytes instanceof Uint8Array) || bytes.length < 1 || bytes.length > DESCRIPTOR_REPLY_MAX_BYTES) {
        throw new ArgumentError(
          `DescriptorRecord.reply: bytes must be 1 to ${DESCRIPTOR_REPLY_MAX_BYTES}, got ${String(bytes?.length)}`,
        );
      }
      if (withFd !== undefined) checkWhole('reply: fd', withFd, 0, 2 ** 31 - 2);
      this.#listener.reply(connection, bytes, withFd);
    };
    return { record, fd, pid, uid, gid, reply };
  }
}

function checkWhole(name: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new ArgumentError(
    `DescriptorListener: ${name} must be a whole number of ${min} to ${max}, got ${String(value)}`,
  );
}

/**
 * Closes a descriptor that another process may have sent, without waiting for the close (see the addon's
 * `closeReceived`). Does not throw.
 */
export function closeReceived(fd: number): void {
  const { addon } = loadNative();
  try {
    if (addon === null) closeSync(fd);
    else addon.closeReceived(fd);
  } catch {
    // A failed close is ignored: the descriptor is then not open, as intended.
  }
}

/**
 * Returns a second descriptor of a connection's socket, which stays open when the connection is destroyed; it belongs
 * to the caller. Undefined without the addon, for a connection that is no socket of the system or has ended, and if
 * there are no descriptors left.
 */
export function duplicateDescriptor(connection: Connection): number | undefined {
  const fd = descriptorOf(connection);
  const { addon } = loadNative();
  if (fd === undefined || addon === null) return undefined;
  try {
    return addon.duplicate(fd);
  } catch {
    return undefined;
  }
}

/**
 * Marks what a connection sends with a differentiated services code point. Returns why it could not; empty if it could,
 * or if the connection has ended.
 */
export function setDscp(connection: Connection, dscp: number): string {
  const fd = descriptorOf(connection);
  const { addon, reason } = loadNative();
  if (addon === null) return reason;
  try {
    if (fd !== undefined) addon.setDscp(fd, dscp);
    return '';
  } catch (error) {
    return (error as Error).message;
  }
}

export type { PeerCredentials } from './addon/contract.js';

/**
 * Returns the identity that the process at the other end of a connected Unix socket had when it connected. `fd` is the
 * socket's descriptor. Undefined without the addon. Throws {@link ArgumentError} for a descriptor that is not a
 * connected Unix socket.
 */
export function peerCredentials(fd: number): PeerCredentials | undefined {
  if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31 - 1) {
    throw new ArgumentError(`peerCredentials: fd must be an open descriptor, got ${String(fd)}`);
  }
  const { addon } = loadNative();
  try {
    return addon?.peerCredentials(fd);
  } catch (cause) {
    throw new ArgumentError(
      `peerCredentials: fd must be a connected Unix socket, got ${fd}: ${(cause as Error).message}`,
      { cause },
    );
  }
}

/**
 * Returns the {@link peerCredentials} of a connection; undefined if it is not a connected Unix socket, for example
 * because the other end has reset it already.
 */
export function credentialsOf(connection: Connection): PeerCredentials | undefined {
  const fd = descriptorOf(connection);
  if (fd === undefined) return undefined;
  try {
    return peerCredentials(fd);
  } catch {
    return undefined;
  }
}

/**
 * Returns the process and user whose shares a connection uses, according to the kernel. If the kernel cannot tell the
 * process, because it is in another PID namespace, each connection counts as a process of its own. If nothing is known,
 * all connections count as one user's.
 */
export function sharerOf(credentials: PeerCredentials | undefined, id: number): Sharer {
  const { pid = 0, uid } = credentials ?? {};
  const group = uid === undefined ? 'unknown' : `user ${uid}`;
  return { one: pid > 0 ? `process ${pid}` : `connection ${id}`, group };
}

/** Returns the descriptor of a socket from Node's internal handle; there is no public way to get it. */
function descriptorOf(connection: Connection): number | undefined {
  const { _handle: handle } = connection as { readonly _handle?: { readonly fd?: number } | null };
  return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : undefined;
}
