import { FairTurns } from '../base/concurrency/fair-turns.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError, ClosedError, MeshCacheError } from '../base/errors.js';
import { CLIENT_TIMEOUT_MS, SPIN_US } from '../base/limits.js';
import { checkNames } from '../base/settings/known-names.js';
import { shown } from '../base/shown.js';
import type { PageHolders } from '../clients/requests/client-namespace.js';
import { defaultClientSocket, ownRuntimeFolder } from '../clients/socket-path.js';
import { encodeFingerprint } from '../clients/wire/fingerprint-messages.js';
import { Capability, RequestType } from '../clients/wire/messages.js';
import { KeyEncoder, type KeyNamespace } from '../core/index.js';
import { spinningClock } from '../native/spinning-clock.js';
import { checkedKeys } from '../store/namespace/host-pool.js';
import { wholeNamespace } from '../store/namespace/node-namespace.js';
import { StoreNamespace } from '../store/namespace/store-namespace.js';
import { systemEnvironment } from '../system/system-environment.js';
import { Attachment, withFingerprint } from './attachment.js';
import { ClientLookups } from './client-calls.js';
import { ClientPages } from './client-pages.js';
import { checkTokenSource } from './client-token.js';
import type { ClientIdentity } from './node-link.js';
import { type ClientFollowOptions, type ClientPageEvent, PageEventFeed } from './page-event-feed.js';

/** How a program attaches to the node of its host. */
export interface MeshCacheClientOptions {
  /**
   * Path of the node's client socket. Default: `MESHCACHE_SOCKET` in the environment, else the path that the command
   * `meshcache node` uses.
   */
  readonly socket?: string;
  /**
   * The namespace of the client's pages. Default: the namespace of the node's own configuration. Fields that are left
   * out count as absent, ranks as 0, sizes as 1.
   */
  readonly namespace?: Partial<KeyNamespace>;
  /** Name of the client in logs and metrics of the node. Default: `node-` and the process id. */
  readonly name?: string;
  /** Milliseconds after which a call ends as a miss. */
  readonly timeoutMs?: number;
  /** Whether `connect` rejects if no node is attached. Otherwise every read is a miss until a node is. */
  readonly required?: boolean;
  /**
   * With `bytes`, pages always travel on the socket, even if the node could access this program's memory. Default:
   * `auto`.
   */
  readonly mode?: 'auto' | 'bytes';
  /**
   * The token that tells the node which user this client is (`users_file` of the node). Default: the contents of the
   * token file.
   */
  readonly token?: string;
  /**
   * Path of a file with the token, which is read at each attempt to attach. Default: `MESHCACHE_TOKEN_FILE` in the
   * environment, else no file.
   */
  readonly tokenFile?: string;
}

/** What a client has looked up and moved, and the node it is attached to. */
export interface MeshCacheClientStats {
  readonly isConnected: boolean;
  /** Id of the node; empty while no node is attached. */
  readonly nodeId: string;
  /**
   * Page bytes that the node moved directly in this program's memory (`directBytes`) and over the socket
   * (`socketBytes`).
   */
  readonly directBytes: number;
  readonly socketBytes: number;
  /**
   * Pages that this program looked up, and how many were found before the first miss of their lookup (`foundPages`).
   */
  readonly lookupPages: number;
  readonly foundPages: number;
  /** The node's own statistics of this client; null if the node does not answer. */
  readonly node: Readonly<Record<string, unknown>> | null;
}

const OPTION_NAMES: ReadonlySet<string> = new Set([
  ...['socket', 'namespace', 'name', 'timeoutMs', 'required', 'mode', 'token', 'tokenFile'],
]);
const NAME = /^[A-Za-z0-9._\-:@/]{1,64}$/;

/**
 * A program that uses the cache through the node of its host, without being a node itself. It has the methods of {@link
 * StoreNamespace} and talks to the node's client socket. The node moves pages directly in memory of
 * `HostRegion.allocate(length, { shared: true })` if it can open that memory; all other pages travel on the socket.
 *
 * While no node is attached, every read is a miss and every other result `false`; the client attaches again by itself.
 * A read into shared memory resolves only when the node can no longer touch that memory. If the node is frozen, this
 * can take longer than the time limit of the call. A page on the socket must be smaller than 64 MiB; larger ones are
 * misses and cannot be set. An idle client does not keep the process alive.
 *
 * @example
 * import { HostRegion, MeshCacheClient } from 'meshcache';
 *
 * await using client = await MeshCacheClient.connect({ namespace: { modelName: 'llama-3-8b' } });
 * const memory = HostRegion.allocate(1 << 20, { shared: true });
 * await client.batchSet(['page-1'], [memory.addr], [memory.length]);
 * const isRead: boolean = await client.get('page-1', memory.addr, memory.length);
 */
export class MeshCacheClient extends StoreNamespace {
  readonly #attachment: Attachment;
  readonly #pages: ClientPages;
  readonly #lookups: ClientLookups;
  readonly #identity: ClientIdentity;
  readonly #closed = new AbortController();

  private constructor(attachment: Attachment, pages: ClientPages, identity: ClientIdentity) {
    const lookups = new ClientLookups(attachment);
    super(pages, new FairTurns(identity.env.clock), (asked, found) => lookups.count(asked, found));
    this.#lookups = lookups;
    this.#attachment = attachment;
    this.#pages = pages;
    this.#identity = identity;
  }

  /**
   * Creates a client. Resolves when the first attempt to attach has ended. Throws `ArgumentError`; with `required` it
   * throws `ERR_UNREACHABLE` if no node is attached. The cause of that error has the code `ERR_REMOTE` if a node
   * refused this client, or `ERR_AUTH` if the node refused its token, user or tag.
   */
  static async connect(
    options: MeshCacheClientOptions = {},
    environment: Partial<Environment> = {},
  ): Promise<MeshCacheClient> {
    if (typeof options !== 'object' || options === null) {
      throw new ArgumentError(
        `connect: options must be an object, such as { socket: '/run/node.sock' }, got ${shown(options)}`,
      );
    }
    checkNames('connect', options, OPTION_NAMES);
    const { namespace, required = false, mode = 'auto', timeoutMs = CLIENT_TIMEOUT_MS } = options;
    const name = options.name ?? `node-${process.pid}`;
    if (typeof name !== 'string' || !NAME.test(name)) {
      throw new ArgumentError(`connect: name must be 1 to 64 of A-Z a-z 0-9 . _ - : @ /, got ${shown(name)}`);
    }
    if (typeof timeoutMs !== 'number' || !(timeoutMs > 0 && timeoutMs < 2 ** 31)) {
      throw new ArgumentError(`connect: timeoutMs must be above 0 and below 2^31, got ${shown(timeoutMs)}`);
    }
    if (mode !== 'auto' && mode !== 'bytes') {
      throw new ArgumentError(`connect: mode must be auto or bytes, got ${shown(mode)}`);
    }
    const path = options.socket ?? (process.env.MESHCACHE_SOCKET || defaultClientSocket(ownRuntimeFolder()));
    if (typeof path !== 'string' || path === '') {
      throw new ArgumentError(`connect: socket must be the path of a node's client socket, got ${shown(path)}`);
    }
    const tokens = {
      token: options.token,
      tokenFile: options.tokenFile ?? (process.env.MESHCACHE_TOKEN_FILE || undefined),
    };
    checkTokenSource('connect', tokens);
    const whole = namespace === undefined ? undefined : wholeNamespace(namespace);
    // The encoder refuses the namespaces that the node would refuse.
    if (whole !== undefined) new KeyEncoder(whole);
    const env = systemEnvironment({ ...environment, clock: environment.clock ?? spinningClock(SPIN_US) });
    const identity = { path, tokens, name, namespace: whole, env };
    const attachment = new Attachment(identity, mode === 'auto');
    await attachment.connect();
    if (required && attachment.link === undefined) {
      await attachment.close();
      const { lastReason, lastError: cause } = attachment;
      throw new MeshCacheError('ERR_UNREACHABLE', `no node at ${path}: ${lastReason}`, { retryable: true, cause });
    }
    return new MeshCacheClient(attachment, new ClientPages(attachment, timeoutMs), identity);
  }

  /** Whether the client is attached to a node, as far as it knows. */
  get isConnected(): boolean {
    return this.#attachment.link !== undefined;
  }

  /**
   * Switches to the pages of other model weights: from now on the namespace has this fingerprint, or none if it is
   * undefined. Calls in progress end as misses. Further calls are misses until the client is attached again, which
   * takes milliseconds. Streams of page events that have begun stay in the old namespace. Throws `ArgumentError` for an
   * invalid fingerprint, and for a client that was created without a namespace.
   */
  setFingerprint(fingerprint?: string): void {
    if (this.#closed.signal.aborted) throw new ClosedError('the client');
    const { namespace } = this.#attachment;
    if (namespace === undefined) {
      throw new ArgumentError(
        'setFingerprint: this client has the namespace of its node; give connect() a namespace of its own',
      );
    }
    const changed = wholeNamespace(withFingerprint(namespace, fingerprint ?? ''));
    if (changed.fingerprint !== namespace.fingerprint) this.#attachment.use(changed);
  }

  /**
   * Tells all attached clients of this name their new fingerprint (empty: none), for example an LLM engine whose
   * weights have changed. Resolves with the number of clients that were told, or null if the node does not answer.
   * Throws `ERR_REMOTE` if the node's version cannot do this.
   */
  async tellFingerprint(client: string, fingerprint: string): Promise<number | null> {
    const { link } = this.#attachment;
    if (link !== undefined && (link.hello.capabilities & Capability.fingerprints) === 0) {
      const { nodeId, packageVersion } = link.hello;
      throw new MeshCacheError(
        'ERR_REMOTE',
        `node ${nodeId} has version ${packageVersion}, which cannot tell clients their fingerprint; update the node`,
      );
    }
    const answer = await this.#pages.ask(RequestType.fingerprint, encodeFingerprint({ client, fingerprint }));
    return answer === null ? null : answer.readUInt32LE();
  }

  /** Whether the node answers. */
  async ping(): Promise<boolean> {
    return (await this.#pages.ask(RequestType.ping)) !== null;
  }

  /**
   * Returns the nodes that hold each page of the main pool; null if no holder is known or the node does not answer.
   * Does not count as a use of the pages.
   */
  async stat(keys: readonly string[]): Promise<(PageHolders | null)[]> {
    return this.#pages.stat(checkedKeys('stat', keys));
  }

  /**
   * Streams what happens to the pages of this client's namespace on its node: first a list of the pages, then each
   * change; with the position `after`, only the changes since then. The stream has its own connection and attaches
   * again by itself: after a restart of the node it continues with a new list. While no node is attached it is silent.
   * It ends when the signal is aborted or the client is closed. Throws `ArgumentError`, `ClosedError`, and `ERR_REMOTE`
   * if the node's version has no page events.
   * @example
   * import { MeshCacheClient } from 'meshcache';
   *
   * await using client = await MeshCacheClient.connect();
   * for await (const event of client.pageEvents({ signal: AbortSignal.timeout(60_000) })) {
   *   if (event.kind === 'changed') for (const { key, tier } of event.changes) console.log(key, tier ?? 'gone');
   * }
   */
  pageEvents(options: ClientFollowOptions = {}): AsyncGenerator<ClientPageEvent, void> {
    if (this.#closed.signal.aborted) throw new ClosedError('the client');
    const { namespace } = this.#attachment;
    return new PageEventFeed({ ...this.#identity, namespace }, this.#closed.signal, options).events();
  }

  /** What this client has looked up and moved, and the node's statistics of it. */
  async stats(): Promise<MeshCacheClientStats> {
    this.#lookups.tell();
    const answer = await this.#pages.ask(RequestType.stats);
    const { direct, bytes } = this.#pages.moved;
    return {
      isConnected: this.isConnected,
      nodeId: this.#attachment.link?.hello.nodeId ?? '',
      directBytes: direct,
      socketBytes: bytes,
      lookupPages: this.#lookups.asked,
      foundPages: this.#lookups.found,
      node: answer === null ? null : (JSON.parse(answer.toString()) as Record<string, unknown>),
    };
  }

  /**
   * Detaches. Calls in progress end as misses; this resolves when they have ended, within seconds. If the node is
   * frozen, a read into shared memory stays pending until the node runs again. Later calls throw `ClosedError`.
   * Idempotent.
   */
  async close(): Promise<void> {
    this.#closed.abort();
    await this.#attachment.close();
  }

  /** A short form for logs. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const nodeId = this.#attachment.link?.hello.nodeId;
    return `MeshCacheClient { ${nodeId === undefined ? 'no node' : `attached to ${nodeId}`} }`;
  }

  /** Detaches: `await using client = …`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal Throws `InvariantError` unless the link and the registered memory agree. */
  verify(): void {
    this.#attachment.verify();
  }
}
