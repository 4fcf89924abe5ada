import { readFileSync } from 'node:fs';
import { within } from '../base/clock.js';
import type { Environment } from '../base/environment.js';
import { CLIENT_CLOSE_TIMEOUT_MS, CLIENT_RECONNECT_MAX_MS, CLIENT_RECONNECT_MIN_MS } from '../base/limits.js';
import { Capability, encodeFile, RequestType, Status } from '../clients/messages.js';
import type { KeyNamespace } from '../core/index.js';
import type { HostRegion } from '../memory/host-region.js';
import { NodeLink } from './node-link.js';

export interface AttachmentParts {
  readonly path: string;
  readonly name: string;
  readonly namespace: KeyNamespace | undefined;
  /** Whether memory that the node can open is registered with it. */
  readonly usesRegions: boolean;
  readonly env: Environment;
}

/** A process, as long as it is the same one. */
interface NodeProcess {
  readonly pid: number;
  /** As the kernel counts it; undefined: it could not be read. */
  readonly startTime: string | undefined;
}

/** How often it is looked whether a node that does not answer has ended. */
const PROCESS_LOOK_MS = 50;

/** Keeps a program attached to the node of its host: connects, connects again when the node has gone and come back, and registers memory. */
export class Attachment {
  readonly #parts: AttachmentParts;
  #link: NodeLink | undefined;
  #connecting: Promise<void> | undefined;
  #cancelRetry: () => void = () => {};
  #retryMs = CLIENT_RECONNECT_MIN_MS;
  #lastReason = '';
  #bootToken = '';
  #process: NodeProcess | undefined;
  #closing: Promise<void> | undefined;
  /** Ids of regions with the current link; undefined: the node does not take it. */
  #regions = new Map<HostRegion, Promise<number | undefined>>();
  readonly #unwatch = new Map<HostRegion, () => void>();
  #nextRegionId = 1;
  /** Told when a link has been opened, or the node of the last one has ended. */
  readonly #onFenced = new Set<() => void>();

  constructor(parts: AttachmentParts) {
    this.#parts = parts;
  }

  get link(): NodeLink | undefined {
    return this.#link;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /** Why there is no link. */
  get lastReason(): string {
    return this.#lastReason;
  }

  /** Resolves when the first attempt has ended, whether it has succeeded or not. Further ones follow by themselves. */
  async connect(): Promise<void> {
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** The id by which the node knows this memory; undefined: it cannot be had, pages go on the socket. */
  regionId(link: NodeLink, region: HostRegion): Promise<number | undefined> {
    if (!this.#parts.usesRegions || region.fd < 0 || (link.hello.capabilities & Capability.files) === 0) {
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

  /** The node may not have this region any more: it is registered anew when it is used next. */
  forgetRegion(region: HostRegion): void {
    this.#unwatch.get(region)?.();
    this.#forget(region);
  }

  /**
   * Resolves when nothing that was asked for by links before can touch this program's memory any more: the node has answered a new link, or
   * its process has ended.
   */
  fenced(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#onFenced.delete(done);
        resolve();
      };
      this.#onFenced.add(done);
      this.#lookAtProcess(done);
      // Another link is the only one that tells.
      if (this.isClosed) this.#retryLater();
    });
  }

  /** Has the requests under way end, for CLIENT_CLOSE_TIMEOUT_MS at most, and the link with them. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#cancelRetry();
    for (const unwatch of this.#unwatch.values()) unwatch();
    this.#unwatch.clear();
    const link = this.#link;
    if (link === undefined) return;
    await within(this.#parts.env.clock, CLIENT_CLOSE_TIMEOUT_MS, link.end());
    link.close('closed');
  }

  async #connect(): Promise<void> {
    const { path, name, namespace, env } = this.#parts;
    try {
      const link = await NodeLink.open({
        path,
        name,
        namespace,
        env,
        onClosed: (closed, reason) => this.#lost(closed, reason),
      });
      if (!this.isClosed) this.#attached(link);
      else link.close('closed');
      // The node has answered: what earlier links had under way is over.
      for (const done of [...this.#onFenced]) done();
    } catch (error) {
      const reason = (error as Error).message;
      if (reason !== this.#lastReason) {
        env.log.log('warn', 'there is no node to attach to: everything is a miss', { socket: path, reason });
      }
      this.#lastReason = reason;
      this.#retryLater();
    }
  }

  #attached(link: NodeLink): void {
    const { path, env } = this.#parts;
    const bootToken = link.hello.bootToken.toString('hex');
    const isRestarted = this.#bootToken !== '' && this.#bootToken !== bootToken;
    this.#bootToken = bootToken;
    this.#link = link;
    this.#lastReason = '';
    this.#retryMs = CLIENT_RECONNECT_MIN_MS;
    this.#regions = new Map();
    this.#process = link.nodePid === undefined ? undefined : processOf(link.nodePid);
    env.log.log('info', 'attached to a node', { socket: path, node_id: link.hello.nodeId, restarted: isRestarted });
  }

  #lost(link: NodeLink, reason: string): void {
    if (this.#link !== link) return;
    this.#link = undefined;
    if (this.isClosed) return;
    this.#lastReason = reason;
    this.#parts.env.log.log('warn', 'the node has gone: everything is a miss', { socket: this.#parts.path, reason });
    this.#retryLater();
  }

  #retryLater(): void {
    const isWantedAnyway = this.#onFenced.size > 0;
    if (this.isClosed && !isWantedAnyway) return;
    const { clock, random } = this.#parts.env;
    const delayMs = this.#retryMs * (0.5 + random.u32() / 2 ** 33);
    this.#retryMs = Math.min(CLIENT_RECONNECT_MAX_MS, 2 * this.#retryMs);
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
      // Its descriptor was closed meanwhile, and may have been that of another file when the node opened it.
      this.#unregister(link, regionId);
      return undefined;
    }
    if (given !== null) {
      const reason = given.body.toString();
      this.#parts.env.log.log('warn', 'the node does not take memory: its pages go on the socket', { reason });
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

  #lookAtProcess(ended: () => void): void {
    const known = this.#process;
    if (known?.startTime === undefined) return;
    const look = (): void => {
      if (!this.#onFenced.has(ended)) return;
      if (processOf(known.pid).startTime !== known.startTime) ended();
      else this.#parts.env.clock.after(PROCESS_LOOK_MS, look, { keepAlive: true });
    };
    look();
  }
}

/** What the kernel says of a process; one that has ended has no start. */
function processOf(pid: number): NodeProcess {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    const isEnded = fields[0] === 'Z' || fields[0] === 'X';
    return { pid, startTime: isEnded ? undefined : fields[19] };
  } catch {
    return { pid, startTime: undefined };
  }
}
