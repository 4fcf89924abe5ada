import { openSync, rmSync } from 'node:fs';
import { assert, assertAtMost, assertEqual } from '../base/assert.js';
import { Shares } from '../base/concurrency/shares.js';
import type { Environment } from '../base/environment/environment.js';
import type { SparseLog } from '../base/environment/sparse-log.js';
import { ProtocolError } from '../base/errors.js';
import {
  CLIENT_DESCRIPTOR_CONNECTIONS_MAX_COUNT,
  CLIENT_DESCRIPTOR_TIMEOUT_MS,
  CLIENT_STAGING_MAX_BYTES,
  CLIENT_STAGING_SHARE,
  CLIENTS_REGIONS_MAX_BYTES,
  CLIENTS_STAGING_MAX_BYTES,
  CLIENTS_STAGING_MEMORY_SHARE,
} from '../base/limits.js';
import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { loadNative } from '../native/addon/loader.js';
import { closeReceived, DescriptorListener, type DescriptorRecord } from '../native/unix-sockets.js';
import type { ClientConnection } from './client-connection.js';
import { ClientFile, openDescriptor } from './requests/client-files.js';
import {
  Capability,
  DESCRIPTOR_RECORD_BYTES,
  DESCRIPTOR_SOCKET_SUFFIX,
  type DescriptorRequest,
  decodeDescriptorRequest,
  encodeDescriptorAnswer,
  type FileRequest,
  STAGING_REGION,
  Status,
} from './wire/messages.js';
import { RequestError } from './wire/request-error.js';

/** Features that every node offers. */
const ALWAYS =
  Capability.hints |
  Capability.expiry |
  Capability.pins |
  Capability.events |
  Capability.priority |
  Capability.fingerprints |
  Capability.lookups |
  Capability.instants |
  Capability.sessions;

export interface ClientMemoryParts {
  /** Path of the client socket. */
  readonly path: string;
  readonly mode: number;
  readonly gid?: number | undefined;
  readonly regionsMaxBytes?: number | undefined;
  readonly env: Environment;
  /** Rate-limited log for events that clients can cause. */
  readonly lines: SparseLog;
}

/** Receives descriptors of files with clients' memory, and gives clients staging memory of this node. */
export class ClientMemory {
  readonly #parts: ClientMemoryParts;
  readonly #isAble = loadNative().addon !== null;
  /** Clients by attach token in hexadecimal. */
  readonly #clients = new Map<string, ClientConnection>();
  readonly #tokens = new Map<ClientConnection, string>();
  /** Bytes of staging memory for all clients together. */
  readonly #stagingBytes: number;
  /** The share of the staging memory that each process and user has. */
  readonly #staging: Shares;
  #listener: DescriptorListener | undefined;

  constructor(parts: ClientMemoryParts) {
    this.#parts = parts;
    this.#stagingBytes = stagingBytesFor(parts.env.host);
    this.#staging = new Shares(this.#stagingBytes);
  }

  /** Returns the capability bits of the features that this node offers to a client. */
  capabilitiesFor(client: ClientConnection): number {
    const shared = this.#isAble ? Capability.descriptors | Capability.staging | Capability.stagedReads : 0;
    return ALWAYS | shared | (this.#fileOwner(client) === undefined ? 0 : Capability.files);
  }

  /** Opens the file that the client's process has open as descriptor `fd`. Throws {@link RequestError}. */
  async openFile(request: FileRequest, client: ClientConnection): Promise<void> {
    const { regionId, isWritable, length, fd } = request;
    if (regionId === STAGING_REGION) throw new RequestError(Status.badRequest, 'region 0 is the staging memory');
    const owner = this.#fileOwner(client);
    if (owner === undefined) throw new RequestError(Status.unavailable, 'files of this client cannot be opened');
    client.regions.checkRoom(regionId);
    this.#checkBytes(client, length);
    const from = { pid: owner.pid ?? request.pid, fd };
    const memory = this.#isAble
      ? await mappedFile(from, length, isWritable)
      : await ClientFile.open(from, length, { isWritable });
    try {
      client.regions.add(regionId, memory, isWritable);
    } catch (error) {
      memory.free();
      throw error;
    }
  }

  /**
   * Returns the process whose descriptors may be opened; undefined if none may. If the addon is available, it is the
   * connected process, provided that it belongs to this node's user. Without the addon the client's own statement is
   * trusted, if no other user can connect.
   */
  #fileOwner(client: ClientConnection): { readonly pid?: number } | undefined {
    if (!this.#isAble) return (this.#parts.mode & 0o077) === 0 ? {} : undefined;
    const peer = client.credentials;
    return peer !== undefined && peer.pid > 0 && peer.uid === process.geteuid?.() ? { pid: peer.pid } : undefined;
  }

  /** Bytes of staging memory that a client may have. */
  get stagingMaxBytes(): number {
    return this.#isAble ? Math.min(CLIENT_STAGING_MAX_BYTES, Math.floor(CLIENT_STAGING_SHARE * this.#stagingBytes)) : 0;
  }

  /** Number of refused connections and records. */
  get refusedCount(): number {
    const stats = this.#listener?.stats;
    return stats === undefined ? 0 : stats.refused + stats.malformed + stats.timedOut;
  }

  /** Listens for descriptors. Throws if the socket cannot be created. */
  listen(): void {
    const { mode, gid } = this.#parts;
    const path = this.#parts.path + DESCRIPTOR_SOCKET_SUFFIX;
    // The owner of the client socket owns this one, too: an existing file was left by a node that crashed.
    rmSync(path, { force: true });
    if (!this.#isAble) return;
    this.#listener = DescriptorListener.listen({
      path,
      mode,
      ...(gid === undefined ? {} : { gid }),
      recordBytes: DESCRIPTOR_RECORD_BYTES,
      connectionsMaxCount: CLIENT_DESCRIPTOR_CONNECTIONS_MAX_COUNT,
      timeoutMs: CLIENT_DESCRIPTOR_TIMEOUT_MS,
      onRecord: (record) => this.#take(record),
    });
  }

  close(): void {
    this.#listener?.close();
  }

  /** Registers the client's token: memory that is presented with it belongs to the client. */
  attach(token: Uint8Array, client: ClientConnection): void {
    const text = Buffer.from(token).toString('hex');
    this.#clients.set(text, client);
    this.#tokens.set(client, text);
  }

  detach(client: ClientConnection): void {
    this.#clients.delete(this.#tokens.get(client) ?? '');
    this.#tokens.delete(client);
  }

  /** How pages of the client travel. */
  modeOf(client: ClientConnection): 'direct' | 'staged' | 'file' | 'bytes' {
    const isStaged = client.regions.has(STAGING_REGION);
    if (client.regions.fileCount > 0) return 'file';
    if (client.regions.count > (isStaged ? 1 : 0)) return 'direct';
    return isStaged ? 'staged' : 'bytes';
  }

  #take(given: DescriptorRecord): void {
    let fd = given.fd;
    let client: ClientConnection | undefined;
    try {
      const request = decodeDescriptorRequest(given.record);
      client = this.#clients.get(request.attachToken.toString('hex'));
      if (client === undefined) throw new RequestError(Status.refused, 'no client is attached with this token');
      if (request.kind === 'staging') {
        const memory = this.#stagingOf(client, request.length);
        given.reply(encodeDescriptorAnswer(Status.ok, memory.length), memory.fd);
      } else {
        const descriptor = fd;
        fd = -1;
        this.#addRegion(client, request, descriptor);
        given.reply(encodeDescriptorAnswer(Status.ok, request.length));
      }
    } catch (error) {
      const status = error instanceof RequestError ? error.status : Status.badRequest;
      const reason = error instanceof Error ? error.message : String(error);
      const isTheirs = error instanceof RequestError || error instanceof ProtocolError;
      const fields = { client_pid: given.pid, client_uid: given.uid, reason };
      this.#parts.lines.log(isTheirs ? 'info' : 'warn', 'memory of a client refused', fields, `${status} ${isTheirs}`);
      this.#parts.env.audit?.record({
        action: 'map',
        door: 'client',
        outcome: 'refused',
        actor: { uid: given.uid, pid: given.pid || undefined, client: client?.name },
        reason: status === Status.tooMuch ? 'too much memory' : 'wrong memory',
        detail: reason,
      });
      const restBytes = status === Status.tooMuch && client !== undefined ? this.#restBytes(client) : 0;
      given.reply(encodeDescriptorAnswer(status, restBytes));
    } finally {
      if (fd >= 0) closeReceived(fd);
    }
  }

  /**
   * Maps a region. Takes ownership of the descriptor, even if it fails. Throws {@link RequestError}, and
   * `ArgumentError` for a descriptor that cannot be mapped.
   */
  #addRegion(client: ClientConnection, { regionId, length, isWritable }: DescriptorRequest, fd: number): void {
    let owned = fd;
    try {
      if (fd < 0) throw new RequestError(Status.badRequest, 'a region needs a descriptor');
      if (regionId === STAGING_REGION) throw new RequestError(Status.badRequest, 'region 0 is the staging memory');
      client.regions.checkRoom(regionId);
      this.#checkBytes(client, length);
      owned = -1;
      const memory = HostRegion.map(fd, length, { writable: isWritable });
      client.regions.add(regionId, memory, isWritable);
    } finally {
      if (owned >= 0) closeReceived(owned);
    }
  }

  /** Returns how many more bytes may be mapped for a client. */
  #restBytes(client: ClientConnection): number {
    let mappedBytes = 0;
    for (const { regions } of this.#clients.values()) mappedBytes += regions.mappedBytes;
    const ownBytes = (this.#parts.regionsMaxBytes ?? CLIENTS_REGIONS_MAX_BYTES) - client.regions.mappedBytes;
    return Math.max(0, Math.min(ownBytes, CLIENTS_REGIONS_MAX_BYTES - mappedBytes));
  }

  /** Throws {@link RequestError} if a region of this length exceeds the limit. */
  #checkBytes(client: ClientConnection, length: number): void {
    const restBytes = this.#restBytes(client);
    if (length <= restBytes) return;
    throw new RequestError(
      Status.tooMuch,
      `a region of ${formatSize(length)}; the node maps at most ${formatSize(restBytes)} more for this client (client_regions_max)`,
    );
  }

  #stagingOf(client: ClientConnection, wantedBytes: number): HostRegion {
    const there = client.regions.memoryOf(STAGING_REGION);
    if (there instanceof HostRegion) return there;
    const length = Math.min(wantedBytes, this.stagingMaxBytes);
    if (length < 1) throw new RequestError(Status.badRequest, 'staging memory of 0 bytes');
    client.regions.checkRoom(STAGING_REGION);
    const { sharer } = client;
    if (!this.#staging.allows(sharer, length)) {
      throw new RequestError(
        Status.tooMuch,
        `${length} bytes of staging memory; ${this.#staging.left} of ${this.#stagingBytes} are left, and this process has ${this.#staging.of(sharer)}: it may have half of what others have left, its user three quarters`,
      );
    }
    const memory = HostRegion.allocate(length, { shared: true });
    this.#staging.take(sharer, length);
    memory.onFree(() => this.#staging.giveBack(sharer, length));
    client.regions.add(STAGING_REGION, memory, true);
    return memory;
  }

  /** Throws `InvariantError` unless each client is found by its own token, and all staging memory is counted. */
  verify(): void {
    let stagingBytes = 0;
    for (const [token, client] of this.#clients) {
      assert(this.#tokens.get(client) === token, () => `client memory: ${client.name} is found by another token`);
      stagingBytes += client.regions.memoryOf(STAGING_REGION)?.length ?? 0;
    }
    assertEqual('client memory: tokens', this.#tokens.size, this.#clients.size);
    // Staging memory of a client that has left is counted until nothing touches it any more.
    assertAtMost(
      'client memory: staging bytes of clients, and all',
      stagingBytes,
      this.#stagingBytes - this.#staging.left,
    );
    this.#staging.verify();
  }
}

/** Bytes of staging memory for all clients of a node on this machine, or in this container. */
export function stagingBytesFor({ memoryBytes }: Pick<Environment['host'], 'memoryBytes'>): number {
  return Math.min(CLIENTS_STAGING_MAX_BYTES, Math.floor(CLIENTS_STAGING_MEMORY_SHARE * memoryBytes));
}

async function mappedFile(
  from: { readonly pid: number; readonly fd: number },
  length: number,
  isWritable: boolean,
): Promise<HostRegion> {
  const handle = await openDescriptor(from, isWritable);
  try {
    // The region needs its own descriptor, because that of a file handle is closed with the handle.
    return HostRegion.map(openSync(`/proc/self/fd/${handle.fd}`, isWritable ? 'r+' : 'r'), length, {
      writable: isWritable,
    });
  } finally {
    await handle.close();
  }
}
