import { readFileSync } from 'node:fs';
import { assert } from '../base/assert.js';
import { jittered, pauseAfter } from '../base/concurrency/backoff.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { CLIENT_CLOSE_TIMEOUT_MS, CLIENT_RECONNECT_MAX_MS, CLIENT_RECONNECT_MIN_MS } from '../base/limits.js';
import { Capability, encodeFile, RequestType, Status } from '../clients/wire/messages.js';
import type { KeyNamespace } from '../core/index.js';
import type { HostRegion } from '../memory/host-region.js';
import { type ClientIdentity, NodeLink } from './node-link.js';

const BACKOFF = { minMs: CLIENT_RECONNECT_MIN_MS, maxMs: CLIENT_RECONNECT_MAX_MS };

/** Identifies a process. Its pid alone does not, because the system reuses pids. */
interface NodeProcess {
  readonly pid: number;
  /** Start time as the kernel counts it; undefined if it could not be read. */
  readonly startTime: string | undefined;
}

interface Fence {
  readonly link: NodeLink;
  readonly done: () => void;
}

/** Milliseconds between checks whether the process of a silent node has ended. */
const PROCESS_LOOK_MS = 50;
const OTHER_NAMESPACE = 'the namespace of the client has changed';

/**
 * Keeps a program attached to the node of its host: connects, reconnects when the node comes back, and registers
 * memory.
 */
export class Attachment {
  readonly #identity: ClientIdentity;
  readonly #usesRegions: boolean;
  /** Namespace that the next link will be opened with. */
  #namespace: KeyNamespace | undefined;
  #link: NodeLink | undefined;
  #connecting: Promise<void> | undefined;
  #cancelRetry: () => void = () => {};
  #failures = 0;
  #lastReason = '';
  #lastError: unknown;
  #bootToken = '';
  #closing: Promise<void> | undefined;
  /** Region ids on the current link; undefined if the node refuses the region. */
  #regions = new Map<HostRegion, Promise<number | undefined>>();
  readonly #unwatch = new Map<HostRegion, () => void>();
  #nextRegionId = 1;
  /** The node process of each link. */
  readonly #processes = new WeakMap<NodeLink, NodeProcess>();
  /** Calls that wait for proof that the node has finished the requests of their link. */
  readonly #fences = new Set<Fence>();

  readonly #closed = new AbortController();

  /** `usesRegions`: whether to register memory with the node if the node can open it. */
  constructor(identity: ClientIdentity, usesRegions: boolean) {
    this.#identity = identity;
    this.#usesRegions = usesRegions;
    this.#namespace = identity.namespace;
  }

  /** Aborted when the client is closed. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** The namespace of this client's pages; undefined means the namespace of the node's configuration. */
  get namespace(): KeyNamespace | undefined {
    return this.#namespace;
  }

  /**
   * Switches to another namespace: detaches from the node and attaches again at once. Later calls no longer use the old
   * namespace.
   */
  use(namespace: KeyNamespace): void {
    this.#namespace = namespace;
    this.#failures = 0;
    this.#link?.close(OTHER_NAMESPACE);
  }

  get env(): Environment {
    return this.#identity.env;
  }

  /** The link for new calls; undefined if there is none. */
  get link(): NodeLink | undefined {
    return this.isClosed ? undefined : this.#link;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /** Why there is no link. */
  get lastReason(): string {
    return this.#lastReason;
  }

  /**
   * The error of the last failed attempt. With the code `ERR_REMOTE` or `ERR_AUTH`, a node answered and refused this
   * client.
   */
  get lastError(): unknown {
    return this.#lastError;
  }

  /** Resolves when the first attempt has succeeded or failed. Later attempts start automatically. */
  async connect(): Promise<void> {
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /**
   * Returns the node's id for this memory. Undefined if the node cannot open the memory, so that pages must travel on
   * the socket.
   */
  regionId(link: NodeLink, region: HostRegion): Promise<number | undefined> {
    if (!this.#usesRegions || region.fd < 0 || (link.hello.capabilities & Capability.files) === 0) {
      return Promise.resolve(undefined);
    }
    const known = this.#regions.get(region);
    if (known !== undefined) return known;
    const id = this.#register(link, region);
    this.#regions.set(region, id);
    if (!this.#unwatch.has(region)) {
      this.#unwatch.set(
        region,
        region.onFree(() => this.#forget(region)),
      );
    }
    return id;
  }

  /** Forgets a region that the node may no longer have; its next use registers it again. */
  forgetRegion(region: HostRegion): void {
    this.#unwatch.get(region)?.();
    this.#forget(region);
  }

  /**
   * Resolves when no request of an ended link can touch this program's memory any more: the same node has answered on a
   * new link, or its process has ended. After `close` it still works, and opens a link for the purpose.
   */
  fenced(link: NodeLink): Promise<void> {
    return new Promise((resolve) => {
      const fence: Fence = {
        link,
        done: () => {
          this.#fences.delete(fence);
          resolve();
        },
      };
      this.#fences.add(fence);
      this.#lookAtProcess(fence);
      // A closed client opens no links otherwise, and a new link may be the only proof.
      if (this.isClosed) this.#retryLater();
    });
  }

  /** Waits at most CLIENT_CLOSE_TIMEOUT_MS for the requests in progress, then closes the link. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#closed.abort();
    this.#cancelRetry();
    for (const unwatch of this.#unwatch.values()) unwatch();
    this.#unwatch.clear();
    if (this.#fences.size > 0) this.#retryLater();
    const link = this.#link;
    if (link === undefined) return;
    await within(this.#identity.env.clock, CLIENT_CLOSE_TIMEOUT_MS, link.end());
    link.close('closed');
  }

  async #connect(): Promise<void> {
    const { path, tokens, name, env } = this.#identity;
    const namespace = this.#namespace;
    try {
      const link = await NodeLink.open({
        path,
        tokens,
        name,
        namespace,
        env,
        onFingerprint: (fingerprint) => {
          if (namespace !== undefined) this.use(withFingerprint(namespace, fingerprint));
        },
        onClosed: (closed, reason) => this.#lost(closed, reason),
      });
      this.#fence(link);
      if (this.isClosed) link.close('closed');
      else this.#attached(link);
      // The namespace changed while the link was being opened.
      if (namespace !== this.#namespace) link.close(OTHER_NAMESPACE);
    } catch (error) {
      const reason = (error as Error).message;
      if (reason !== this.#lastReason) {
        env.log.log('warn', 'no node to attach to, reads are misses', { socket: path, reason });
      }
      this.#lastReason = reason;
      this.#lastError = error;
      this.#retryLater();
    }
  }

  /**
   * Takes a node's first answer on a new link as proof that earlier links are over: a node answers only after it has
   * ended the requests of all links whose end it has seen. An answer of another node proves nothing.
   */
  #fence(link: NodeLink): void {
    for (const { link: before, done } of [...this.#fences]) {
      if (before.hello.bootToken.equals(link.hello.bootToken)) done();
    }
  }

  #attached(link: NodeLink): void {
    const { path, env } = this.#identity;
    const bootToken = link.hello.bootToken.toString('hex');
    const isRestarted = this.#bootToken !== '' && this.#bootToken !== bootToken;
    this.#bootToken = bootToken;
    this.#link = link;
    this.#lastReason = '';
    this.#failures = 0;
    this.#regions = new Map();
    if (link.nodePid !== undefined) this.#processes.set(link, processOf(link.nodePid));
    env.log.log('info', 'attached to node', { socket: path, node_id: link.hello.nodeId, restarted: isRestarted });
  }

  #lost(link: NodeLink, reason: string): void {
    if (this.#link !== link) return;
    this.#link = undefined;
    if (this.isClosed) return;
    this.#lastReason = reason;
    const level = reason === OTHER_NAMESPACE ? 'info' : 'warn';
    this.#identity.env.log.log(level, 'node lost, reads are misses', { socket: this.#identity.path, reason });
    this.#retryLater();
  }

  #retryLater(): void {
    const isWantedAnyway = this.#fences.size > 0;
    if (this.isClosed && !isWantedAnyway) return;
    const { clock, random } = this.#identity.env;
    const delayMs = jittered(pauseAfter(++this.#failures, BACKOFF), random);
    this.#cancelRetry();
    this.#cancelRetry = clock.after(delayMs, () => void this.connect(), { keepAlive: isWantedAnyway });
  }

  async #register(link: NodeLink, region: HostRegion): Promise<number | undefined> {
    const regionId = this.#nextRegionId++;
    const { fd, length } = region;
    const body = encodeFile({ regionId, isWritable: true, length, pid: process.pid, fd });
    const { answer } = link.request(RequestType.file, body, 0);
    const given = await answer;
    if (given?.status === Status.ok) {
      if (region.isLive) return regionId;
      // The descriptor was closed in the meantime, and the node may have opened another file under the same number.
      this.#unregister(link, regionId);
      return undefined;
    }
    // The node was stopped for a long time. The next use of the memory registers it again.
    if (given?.status === Status.tooLate) this.#regions.delete(region);
    else if (given !== null) {
      const reason = given.body.toString();
      this.#identity.env.log.log('warn', 'node refuses memory, pages go over the socket', { reason });
    }
    return undefined;
  }

  #forget(region: HostRegion): void {
    this.#unwatch.delete(region);
    const known = this.#regions.get(region);
    this.#regions.delete(region);
    const link = this.#link;
    known?.then((id) => {
      if (id !== undefined && link !== undefined) this.#unregister(link, id);
    });
  }

  #unregister(link: NodeLink, regionId: number): void {
    const body = Buffer.alloc(4);
    body.writeUInt32LE(regionId);
    void link.request(RequestType.unregion, body, 0);
  }

  #lookAtProcess(fence: Fence): void {
    const known = this.#processes.get(fence.link);
    if (known?.startTime === undefined) return;
    const look = (): void => {
      if (!this.#fences.has(fence)) return;
      if (processOf(known.pid).startTime !== known.startTime) fence.done();
      else this.#identity.env.clock.after(PROCESS_LOOK_MS, look, { keepAlive: true });
    };
    look();
  }

  /** Throws `InvariantError` unless a free watch is set for every registered region. */
  verify(): void {
    this.#link?.verify();
    if (this.isClosed) return;
    for (const region of this.#regions.keys()) {
      assert(
        this.#unwatch.has(region),
        () => `attachment: the region at ${region.start} is registered and not watched`,
      );
    }
  }
}

/** Returns the namespace with another fingerprint; an empty fingerprint removes it. */
export function withFingerprint(namespace: KeyNamespace, fingerprint: string): KeyNamespace {
  const { fingerprint: _, ...rest } = namespace;
  return fingerprint === '' ? rest : { ...rest, fingerprint };
}

/** Reads the identity of a process from the kernel. A process that has ended has no start time. */
function processOf(pid: number): NodeProcess {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    // A process with a dead first thread still runs while it has other threads.
    const isEnded = (fields[0] === 'Z' || fields[0] === 'X') && Number(fields[17]) <= 1;
    return { pid, startTime: isEnded ? undefined : fields[19] };
  } catch {
    return { pid, startTime: undefined };
  }
}
