import { assertAtMost, assertEqual } from '../base/assert.js';
import { ByteBudget } from '../base/concurrency/byte-budget.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import { type Sharer, Shares } from '../base/concurrency/shares.js';
import { WorkTurns } from '../base/concurrency/work-turns.js';
import { type AuditActor, audited } from '../base/environment/audit.js';
import type { Environment } from '../base/environment/environment.js';
import type { Connection, Server } from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import {
  CLIENT_FINISH_TIMEOUT_MS,
  CLIENT_REQUEST_MAX_KEYS,
  CLIENTS_REGIONS_MAX_COUNT,
  PAGE_MAX_BYTES,
} from '../base/limits.js';
import type { KeyNamespace } from '../core/index.js';
import { STORE_CALLERS_COUNT } from '../core/pool/request-terms.js';
import { credentialsOf, sharerOf } from '../native/unix-sockets.js';
import { PasswordCheck } from '../net/auth-failures.js';
import { listenLocally, orConfigError } from '../net/local-socket.js';
import { ServedConnections } from '../net/served/served-connections.js';
import type { Identity, Users } from '../net/users.js';
import { ClientConnection } from './client-connection.js';
import { type ClientLimits, clientLimits, servedLimits } from './client-limits.js';
import { ClientMemory } from './client-memory.js';
import { AbsentBudget } from './requests/absent-memory.js';
import type { AttachedClient } from './requests/attached-client.js';
import { ClientAccess } from './requests/client-access.js';
import type { ClientNamespace } from './requests/client-namespace.js';
import { ClientCounts, type ClientFigures, ClientNames } from './requests/client-stats.js';
import type { FingerprintRequest } from './wire/fingerprint-messages.js';
import {
  CLIENT_PROTOCOL_VERSION,
  encodeHelloAnswer,
  type FileRequest,
  type HelloRequest,
  Status,
  TOKEN_BYTES,
} from './wire/messages.js';
import { RequestError } from './wire/request-error.js';

export interface ClientServerOptions {
  /** Path of the Unix socket. */
  readonly path: string;
  /** Permission bits of the socket. */
  readonly mode: number;
  /** Group of the socket; undefined: the group of this process. */
  readonly gid?: number | undefined;
  /** Most bytes of memory mapped for one client; undefined: the limit for all clients together. */
  readonly regionsMaxBytes?: number | undefined;
  /** Replacements for the production limits, for tests. */
  readonly limits?: Partial<ClientLimits> | undefined;
}

export interface ClientServerParts {
  readonly env: Environment;
  /** Tells when this process was not running. */
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  /** The users of the node, and their rights. */
  readonly users: Users;
  readonly nodeId: string;
  readonly packageVersion: string;
  /**
   * Returns the pages of a namespace; undefined selects the node's own. `sharer`: whose shares of the
   * node its pins and prefetched pages take. Throws `ArgumentError` for an invalid namespace.
   */
  readonly namespaceOf: (namespace: KeyNamespace | undefined, sharer: Sharer) => ClientNamespace;
  /** Divides the time of the main loop between the clients of all doors. Default: only between those of this server. */
  readonly turns?: WorkTurns | undefined;
  /** Tag of the node's own namespace; empty if it has none. */
  readonly ownTag: string;
  /** Statistics of the node that a client gets in addition to its own. */
  readonly nodeStats: () => Readonly<Record<string, unknown>>;
}

/** One client, as an operator sees it. */
export interface ClientInfo extends ClientFigures {
  readonly name: string;
  readonly pid: number;
  /** How the client's pages travel. */
  readonly mode: string;
  readonly in_flight: number;
  readonly regions: number;
  readonly mapped_bytes: number;
}

/** A namespace of attached clients. */
export interface AttachedNamespace {
  readonly settings: KeyNamespace;
  /** Prefix of the object keys of its main pool, without the slash. */
  readonly digest: string;
  /** Names of its clients, one element per client. */
  readonly clients: readonly string[];
}

const NAME = /^[A-Za-z0-9._\-:@/]{1,64}$/;

/** Texts for clients that are refused: the reason for the log, then the message for the client. */
const REFUSALS = {
  wrong: ['wrong token', 'the token is of no user of this node; users_file has the digests of tokens'],
  paused: ['too many wrong tokens', 'too many wrong tokens of this user of the host; try again in a few seconds'],
  nobody: [
    'no user',
    'this node serves its users only: show a token (users_file has its digest), or be one of their os_users',
  ],
} as const;

/** A client that is refused, and its identity if known. */
interface Refused {
  readonly connection: ClientConnection;
  readonly identity?: Identity;
}

/** The client socket of a node, to which processes of this host attach. `wire/PROTOCOL.md` describes its messages. */
export class ClientServer {
  readonly #options: ClientServerOptions;
  readonly #parts: ClientServerParts;
  readonly #server: Server;
  readonly #memory: ClientMemory;
  readonly limits: ClientLimits;
  /** Memory for request bodies in progress, shared by all clients. */
  readonly budget: ByteBudget;
  /** @internal Client memory that has been charged to the node. */
  readonly paid = new AbsentBudget();
  /** Attached clients, by process and user. */
  readonly #clientShares: Shares;
  /** Regions of all clients, by process and user. */
  readonly regionShares = new Shares(CLIENTS_REGIONS_MAX_COUNT);
  /** @internal Divides the time of the main loop between clients. */
  readonly turns: WorkTurns;
  /** Rate-limited log for events that clients can cause. */
  readonly lines: SparseLog;
  readonly #names = new ClientNames();
  /** Checks the tokens of clients. */
  readonly #tokens: PasswordCheck<Identity>;
  readonly #unwatchUsers: () => void;
  readonly connections: ServedConnections<ClientConnection>;
  /** The pages that each attached client sees. */
  readonly #views = new Map<ClientConnection, ClientNamespace>();
  readonly bootToken: Buffer;
  #refusedCount = 0;
  #lastCaller = 0;
  #lastConnection = 0;
  #closing: Promise<void> | undefined;

  /** Starts to listen. Throws `ConfigError` if the path cannot be used. */
  static async listen(options: ClientServerOptions, parts: ClientServerParts): Promise<ClientServer> {
    const server = new ClientServer(options, parts);
    await server.#listen();
    return server;
  }

  private constructor(options: ClientServerOptions, parts: ClientServerParts) {
    this.#options = options;
    this.#parts = parts;
    this.limits = clientLimits(options.limits);
    const { bodiesMaxBytes, bodyMaxBytes, clientsMaxCount } = this.limits;
    this.budget = new ByteBudget(bodiesMaxBytes, Math.min(bodyMaxBytes, bodiesMaxBytes));
    this.#clientShares = new Shares(clientsMaxCount);
    this.turns = parts.turns ?? new WorkTurns(parts.env.clock);
    this.lines = new SparseLog(parts.env);
    const fairness = { turns: this.turns, pauses: parts.pauses };
    this.connections = new ServedConnections(parts.env.clock, servedLimits(this.limits), fairness);
    this.bootToken = Buffer.from(parts.env.random.bytes(TOKEN_BYTES));
    this.#server = parts.env.network.createServer({ plane: 'client' }, (socket) => this.#accept(socket));
    this.#memory = new ClientMemory({ ...options, env: parts.env, lines: this.lines });
    const { users } = parts;
    this.#tokens = new PasswordCheck((tokenDigest) => users.identify({ tokenDigest }), 'client', parts.env);
    this.#unwatchUsers = users.onRenewed(() => {
      for (const client of this.connections) client.usersChanged();
    });
    this.#reportMetrics();
  }

  get path(): string {
    return this.#options.path;
  }

  clients(): ClientInfo[] {
    return this.connections.accepted().map((client) => this.#infoOf(client));
  }

  /** The namespaces of the attached clients. */
  namespaces(): AttachedNamespace[] {
    const byDigest = new Map<string, { settings: KeyNamespace; digest: string; clients: string[] }>();
    for (const [client, namespace] of this.#views) {
      const { digest, settings } = namespace;
      const known = byDigest.get(digest);
      if (known === undefined) byDigest.set(digest, { settings, digest, clients: [client.name] });
      else known.clients.push(client.name);
    }
    return [...byDigest.values()];
  }

  /**
   * Ends all connections. Resolves when nothing touches the memory of clients any more and the sockets are removed.
   * Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#unwatchUsers();
    this.#memory.close();
    const reason = 'the node is closing';
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await this.connections.shutDown(reason, CLIENT_FINISH_TIMEOUT_MS);
    await closed;
  }

  async #listen(): Promise<void> {
    const { env } = this.#parts;
    const onError = (error: Error): void => this.#failed(error);
    try {
      await listenLocally(this.#server, { ...this.#options, key: 'client_socket' }, { env, onError });
      await orConfigError('client_socket', this.path, () => this.#memory.listen());
    } catch (error) {
      this.#unwatchUsers();
      this.#memory.close();
      this.#server.close();
      throw error;
    }
  }

  #failed(error: Error): void {
    this.#parts.env.log.log('error', 'client socket failed', { path: this.path, error: error.message });
  }

  #accept(socket: Connection): void {
    if (this.#closing !== undefined) {
      socket.on('error', () => {});
      socket.destroy();
      return;
    }
    const credentials = credentialsOf(socket);
    const sharer = sharerOf(credentials, ++this.#lastConnection);
    this.connections.add(new ClientConnection(socket, this, { sharer, credentials }));
  }

  /** Called when a client was closed to make room for others. */
  replaced(client: ClientConnection): void {
    this.#refused(client.served.reason, { connection: client });
  }

  /** Counts and logs a refused client. `reason` is a constant text; `detail` may contain text of the client. */
  #refused(reason: string, { connection, identity }: Refused, detail?: string): void {
    const { name, sharer } = connection;
    this.#refusedCount++;
    this.lines.log(
      'warn',
      'client refused',
      { client: name || undefined, process: sharer.one, user: sharer.group, reason },
      reason,
    );
    const actor = actorOf(connection, identity);
    this.#parts.env.audit?.record({ action: 'attach', door: 'client', outcome: 'refused', actor, reason, detail });
  }

  /** Records that a client is refused, and returns the error for it. */
  #refusal(status: Status, reason: string, text: string, refused: Refused): RequestError {
    this.#refused(reason, refused, text);
    return new RequestError(status, text);
  }

  /**
   * @internal Whether the client's answers may grow by `moreBytes` within its share, so that others can still be
   * answered.
   */
  mayHaveAnswers(client: ClientConnection, moreBytes: number): boolean {
    const shares = new Shares(this.limits.allOutputMaxBytes);
    for (const { sharer, answerBytes } of this.connections) {
      if (answerBytes > shares.left) return false;
      if (answerBytes > 0) shares.take(sharer, answerBytes);
    }
    return shares.allows(client.sharer, moreBytes);
  }

  /** Attaches a client. Throws {@link RequestError}. */
  async attach(hello: HelloRequest, connection: ClientConnection): Promise<AttachedClient> {
    const { minVersion, maxVersion, name, pid } = hello;
    if (minVersion > CLIENT_PROTOCOL_VERSION || maxVersion < CLIENT_PROTOCOL_VERSION) {
      const spoken = `this node speaks version ${CLIENT_PROTOCOL_VERSION} of the protocol`;
      const text = `${spoken}, the client ${minVersion} to ${maxVersion}`;
      throw this.#refusal(Status.refused, 'another version', text, { connection });
    }
    if (!NAME.test(name)) {
      const text = 'the name of a client has 1 to 64 characters of A-Z a-z 0-9 . _ - : @ /';
      throw this.#refusal(Status.refused, 'wrong name', text, { connection });
    }
    // PROTOCOL.md promises that earlier requests of the same process are over before HELLO is answered.
    const before = this.connections.ending().filter((client) => client.pid === pid && client.name === name);
    await Promise.all(before.map(({ served }) => served.whenEnded()));
    if (connection.isClosed) throw new RequestError(Status.refused, 'the connection has ended');
    const { clientsMaxCount, bodyMaxBytes, inFlightMaxCount } = this.limits;
    const { sharer } = connection;
    if (!this.#clientShares.allows(sharer, 1)) {
      const ownCount = this.#clientShares.of(sharer);
      const text = `${this.connections.accepted().length} clients are attached, ${ownCount} of this process; of ${clientsMaxCount}, a process may have half of what others have left, a user three quarters`;
      throw this.#refusal(Status.tooMuch, 'too many clients', text, { connection });
    }
    const identity = this.#identityOf(hello, connection);
    const { namespace, access } = this.#namespaceOf(hello.namespace, identity, connection);
    this.#clientShares.take(sharer, 1);
    this.#views.set(connection, namespace);
    const { env, nodeId, packageVersion } = this.#parts;
    const attachToken = Buffer.from(env.random.bytes(TOKEN_BYTES));
    this.#memory.attach(attachToken, connection);
    this.lines.log('info', 'client attached', { client: name, client_pid: pid, user: identity.name }, name);
    const actor = actorOf(connection, identity);
    const told = { door: 'client', actor, namespace: namespace.settings.tag } as const;
    env.audit?.record({ ...told, action: 'attach', outcome: 'done' });
    return {
      namespace,
      access,
      audited: (action, work) => audited(env.audit, { ...told, action }, work),
      counts: new ClientCounts(env.metrics, this.#names.shown(name)),
      caller: this.#nextCaller(),
      answer: encodeHelloAnswer({
        version: CLIENT_PROTOCOL_VERSION,
        capabilities: this.#memory.capabilitiesFor(connection),
        bootToken: this.bootToken,
        attachToken,
        pid: process.pid,
        requestMaxKeys: CLIENT_REQUEST_MAX_KEYS,
        bodyMaxBytes,
        inFlightMaxCount,
        pageMaxBytes: PAGE_MAX_BYTES,
        stagingMaxBytes: this.#memory.stagingMaxBytes,
        nodeId,
        packageVersion,
        instantUs: hello.comparesClocks === true ? Math.floor(1000 * env.clock.nowMs()) : undefined,
      }),
    };
  }

  /** @internal Opens a file of a client as a region. Throws {@link RequestError}. */
  openFile(request: FileRequest, client: ClientConnection): Promise<void> {
    return this.#memory.openFile(request, client);
  }

  /** @internal Statistics that a client gets about itself and the node. */
  statsOf(client: ClientConnection): unknown {
    return { client: this.#infoOf(client), node: this.#parts.nodeStats() };
  }

  /**
   * @internal Tells the attached clients of this name their fingerprint, if the asking client may use their namespaces.
   * Returns the number of clients that were told.
   */
  tellFingerprint({ client, fingerprint }: FingerprintRequest, { access: asking }: ClientConnection): number {
    const isMeant = ({ name, access }: ClientConnection) => name === client && access && asking?.reaches(access);
    const told = this.connections.accepted().filter(isMeant);
    const count = told.filter((connection) => connection.tellFingerprint(fingerprint)).length;
    this.lines.log('info', 'clients told their fingerprint', { client, fingerprint, clients: count }, client);
    return count;
  }

  /** Returns the number of the next client, counting from 1; 0 is the node's own program. */
  #nextCaller(): number {
    this.#lastCaller = (this.#lastCaller % (STORE_CALLERS_COUNT - 1)) + 1;
    return this.#lastCaller;
  }

  /**
   * Identifies the client: by its token if it presents one, else by the user of its process. Throws {@link
   * RequestError}.
   */
  #identityOf({ token }: HelloRequest, connection: ClientConnection): Identity {
    const { uid } = connection.credentials ?? {};
    const found =
      token === undefined ? this.#parts.users.identify({ uid }) : this.#tokens.judge(token, connection.sharer.group);
    if (found instanceof Object) return found;
    const [reason, text] = REFUSALS[found ?? 'nobody'];
    throw this.#refusal(Status.denied, reason, text, { connection });
  }

  #namespaceOf(namespace: KeyNamespace | undefined, identity: Identity, connection: ClientConnection) {
    const tag = namespace === undefined ? this.#parts.ownTag : (namespace.tag ?? '');
    try {
      // Rights are checked before the namespace is used: a tag has a limit of namespaces, and others must not use it
      // up.
      const access = new ClientAccess(identity, tag, (action, detail) => {
        const actor = actorOf(connection, identity);
        const event = { action, door: 'client', outcome: 'refused', actor, namespace: tag } as const;
        this.#parts.env.audit?.record({ ...event, reason: 'no right', detail });
      });
      const found = this.#parts.namespaceOf(namespace, connection.sharer);
      if ((found.settings.tag ?? '') === tag) return { namespace: found, access };
      throw new RequestError(Status.denied, 'the namespace has the digest of one with another tag; nothing was done');
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      const isDenied = error instanceof RequestError;
      const reason = isDenied ? 'namespace of others' : 'wrong namespace';
      throw this.#refusal(isDenied ? error.status : Status.refused, reason, text, { connection, identity });
    }
  }

  /** Called when a client's connection is closed. */
  closed(connection: ClientConnection): void {
    if (this.#views.delete(connection)) this.#clientShares.giveBack(connection.sharer, 1);
    this.#memory.detach(connection);
  }

  /** @internal Called when nothing of a closed connection is in progress any more. */
  ended(connection: ClientConnection): void {
    const { reason } = connection.served;
    if (connection.counts === undefined) return;
    const fields = { client: connection.name, client_pid: connection.pid, reason };
    this.lines.log('info', 'client detached', fields, connection.name);
    const event = {
      action: 'detach',
      door: 'client',
      outcome: 'done',
      actor: actorOf(connection, connection.access),
      detail: reason,
    } as const;
    this.#parts.env.audit?.record(event);
  }

  #infoOf(client: ClientConnection): ClientInfo {
    const { name, pid, regions, inFlightCount, counts } = client;
    return {
      name,
      pid,
      mode: this.#memory.modeOf(client),
      in_flight: inFlightCount,
      regions: regions.count,
      mapped_bytes: regions.mappedBytes,
      ...(counts as ClientCounts).figures(),
    };
  }

  #reportMetrics(): void {
    const { metrics } = this.#parts.env;
    const sum = (of: (client: ClientConnection) => number) => () => this.connections.sum(of);
    metrics.setGaugeProvider('meshcache_clients', () => this.connections.accepted().length);
    metrics.setGaugeProvider(
      'meshcache_client_mapped_bytes',
      sum(({ regions }) => regions.mappedBytes),
    );
    metrics.setGaugeProvider(
      'meshcache_client_requests_in_flight',
      sum(({ inFlightCount }) => inFlightCount),
    );
    metrics.setCounterProvider('meshcache_clients_refused_total', () => this.#refusedCount + this.#memory.refusedCount);
  }

  /** @internal Throws `InvariantError` unless the clients are counted, within their limits, and each is consistent. */
  verify(): void {
    this.connections.verify('client server');
    assertEqual('client server: namespaces of clients', this.#views.size, this.connections.accepted().length);
    assertAtMost('client server: clients', this.connections.accepted().length, this.limits.clientsMaxCount);
    this.budget.verify();
    this.turns.verify();
    this.#clientShares.verify();
    this.regionShares.verify();
    assertEqual(
      'client server: shares of clients',
      this.limits.clientsMaxCount - this.#clientShares.left,
      this.#views.size,
    );
    this.#memory.verify();
  }
}

function actorOf({ name, credentials }: ClientConnection, identity?: { readonly name: string }): AuditActor {
  const { uid, pid } = credentials ?? {};
  return { user: identity?.name, uid, pid: pid || undefined, client: name || undefined };
}
