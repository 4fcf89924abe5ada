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

/** One record that a process has sent, with the descriptor that came with it. */
export interface DescriptorRecord {
  /** The record of `recordBytes`, which belongs to the receiver. */
  readonly record: Uint8Array;
  /** A descriptor, which then belongs to the receiver; -1: none. */
  readonly fd: number;
  /** Process id of the peer when it connected, in the PID namespace of this process; 0: it is outside of that. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /**
   * Sends the answer, 1 to 256 bytes, and with it a copy of the descriptor `fd`, if given, which stays the caller's;
   * then closes the connection. Later calls do nothing, nor do calls when the connection has ended.
   */
  reply(bytes: Uint8Array, fd?: number): void;
}

export interface DescriptorListenerOptions {
  /** Path of the socket file. The file of an earlier process must have been removed. */
  readonly path: string;
  /** Permission bits of the socket file; they are set before a process can connect. */
  readonly mode: number;
  /** Group of the file; by default that of the process. */
  readonly gid?: number;
  /** Length of each record, 1 to 4096. */
  readonly recordBytes: number;
  /** Connections above it are closed at once. */
  readonly connectionsMaxCount: number;
  /** Time after which an accepted connection without an answer is closed. */
  readonly timeoutMs: number;
  /**
   * Called on this thread for each record. An error that it throws is an uncaught exception. A process that disconnects
   * before it has its answer may not be reported.
   */
  readonly onRecord: (record: DescriptorRecord) => void;
}

/**
 * A Unix socket for descriptors: each connection sends one record, in one message, with or without a descriptor, and
 * gets one answer. Sockets of Node lose descriptors, so the addon has its own, with a separate thread.
 *
 * It does not keep the process alive, and is closed when the calling thread ends.
 */
export class DescriptorListener {
  readonly #listener: NativeDescriptorListener;
  readonly #onRecord: (record: DescriptorRecord) => void;
  #isClosed = false;

  /**
   * Starts to listen. Throws {@link ArgumentError} for invalid options and without the addon, and the addon's
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

  /** Counters since the start; after closing, their last values. */
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

  /** Hands out records; an error thrown for one record does not affect the others. */
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
 * Closes a descriptor that another process may have sent, without waiting for it, as the addon's `closeReceived` does.
 * Does not throw.
 */
export function closeReceived(fd: number): void {
  const { addon } = loadNative();
  try {
    if (addon === null) closeSync(fd);
    else addon.closeReceived(fd);
  } catch {
    // A failed close is ignored: the descriptor is not open, which is what was wanted.
  }
}

export type { PeerCredentials } from './addon/contract.js';

/**
 * Identity of the process at the other end of a connected Unix socket when it connected; `fd` is the socket's
 * descriptor. Undefined without the addon. Throws {@link ArgumentError} for a descriptor that is not one of a connected
 * Unix socket.
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
 * {@link peerCredentials} of a connection; undefined also if it has ended or is not a connection of the operating
 * system.
 */
export function credentialsOf(connection: Connection): PeerCredentials | undefined {
  const fd = descriptorOf(connection);
  return fd === undefined ? undefined : peerCredentials(fd);
}

/**
 * A connection takes the share of its process and of its user, as the kernel knows them. Where the kernel cannot tell
 * the process, because it is of another PID namespace, each connection counts as one; where nothing is known, all are
 * of one user.
 */
export function sharerOf(credentials: PeerCredentials | undefined, id: number): Sharer {
  const { pid = 0, uid } = credentials ?? {};
  const group = uid === undefined ? 'unknown' : `user ${uid}`;
  return { one: pid > 0 ? `process ${pid}` : `connection ${id}`, group };
}

/** The descriptor of a socket, from Node's internal handle: there is no public way to get it. */
function descriptorOf(connection: Connection): number | undefined {
  const { _handle: handle } = connection as { readonly _handle?: { readonly fd?: number } | null };
  return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : undefined;
}
