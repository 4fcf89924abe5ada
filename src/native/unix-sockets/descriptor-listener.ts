import { closeSync } from 'node:fs';
import { ArgumentError } from '../../base/errors.js';
import {
  DESCRIPTOR_RECORD_MAX_BYTES,
  DESCRIPTOR_REPLY_MAX_BYTES,
  type DescriptorListenerStats,
  type NativeDescriptorListener,
  type NativeDescriptorRecord,
} from '../addon/contract.js';
import { loadNative } from '../addon/loader.js';

export type { DescriptorListenerStats } from '../addon/contract.js';

/** One record that a process has sent, with the descriptor that came with it. */
export interface DescriptorRecord {
  /** Exactly `recordBytes`, the receiver's own copy. */
  readonly record: Uint8Array;
  /** -1: none. The receiver owns it. */
  readonly fd: number;
  /** Of the process that connected, when it did, in the PID namespace of this one; 0: it is not in there. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /**
   * Sends the answer, 1 to 256 bytes, and with it a copy of the descriptor `fd`, if given, which stays the caller's; then closes
   * the connection. Later calls do nothing, nor do calls when the connection has ended.
   */
  reply(bytes: Uint8Array, fd?: number): void;
}

export interface DescriptorListenerOptions {
  /** The socket file is made there. What a process before has left there must have been removed. */
  readonly path: string;
  /** Permission bits of the file, which it has before anybody can connect. */
  readonly mode: number;
  /** Group of the file; by default that of the process. */
  readonly gid?: number;
  /** Of each record, 1 to 4096. */
  readonly recordBytes: number;
  /** Connections above it are closed at once. */
  readonly connectionsMaxCount: number;
  /** A connection that was not answered so long after it was accepted is closed. */
  readonly timeoutMs: number;
  /**
   * Called on this thread for each record. What it throws is an uncaught exception. A process that hangs up before it has its
   * answer may not be told of here.
   */
  readonly onRecord: (record: DescriptorRecord) => void;
}

/**
 * A Unix socket for descriptors: each connection sends one record, in one message, with or without a descriptor, and gets
 * one answer. Node's own sockets lose descriptors, so this one is the addon's, with a thread of its own.
 *
 * It does not keep the process from ending, and is closed when its thread ends.
 */
export class DescriptorListener {
  readonly #listener: NativeDescriptorListener;
  readonly #onRecord: (record: DescriptorRecord) => void;
  #isClosed = false;

  /**
   * Listens at once. Throws {@link ArgumentError} for options that cannot be and without the addon, and the addon's
   * `NativeFailure`, which has `call` and `errno`, when the path cannot be listened on.
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

  /** Counters since it was made; the last ones once it is closed. */
  get stats(): DescriptorListenerStats {
    return this.#listener.stats();
  }

  /**
   * Closes all connections, and the descriptors that were not handed to `onRecord`, and removes the socket file unless
   * another one has taken its place. Idempotent.
   */
  close(): void {
    this.#isClosed = true;
    this.#listener.close();
  }

  /** What one `onRecord` throws does not keep the others from their records. */
  #arrived(records: readonly NativeDescriptorRecord[]): void {
    const failures: unknown[] = [];
    for (const record of records) {
      if (this.#isClosed) {
        if (record.fd >= 0) closeSync(record.fd);
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
