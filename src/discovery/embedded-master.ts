import { type Environment, systemEnvironment } from '../base/environment.js';
import { ConfigError } from '../base/errors.js';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { type HostNames, localAddressOf, systemHostNames } from './local-address.js';
import { DiscoveryServer } from './server.js';

export interface EmbeddedMasterOptions {
  /** Seconds; default 6. */
  readonly memberTtl?: number;
  /** Seconds; default 2. */
  readonly heartbeatInterval?: number;
  readonly env?: Environment;
  readonly hostNames?: HostNames;
}

/** A listed address of this machine, and the master there if it is ours. */
interface Seat {
  readonly endpoint: Endpoint;
  readonly listenHost: string;
  server: DiscoveryServer | undefined;
}

/**
 * The masters that this process runs. Of all nodes on the machine of a listed discovery address, whoever gets the port is
 * head; the others are clients, and try for the port again when the head does not answer (`tryTakeOver`).
 */
export class EmbeddedMaster {
  readonly #masters: readonly Endpoint[];
  readonly #options: EmbeddedMasterOptions;
  readonly #env: Environment;
  #seats: Seat[] = [];
  #pass: Promise<void> | undefined;
  #stopped = false;

  /** `masters`: the listed discovery addresses. */
  constructor(masters: readonly Endpoint[], options: EmbeddedMasterOptions = {}) {
    this.#masters = masters;
    this.#options = options;
    this.#env = options.env ?? systemEnvironment();
  }

  /** Whether this process runs a master now. */
  get isHead(): boolean {
    return this.#seats.some((seat) => seat.server !== undefined);
  }

  /** Resolves when every listed port of this machine is taken, by this process or another one. Throws `ConfigError` when one cannot be had for another reason. */
  async start(): Promise<void> {
    const names = this.#options.hostNames ?? systemHostNames;
    for (const endpoint of this.#masters) {
      const listenHost = await localAddressOf(endpoint.host, names);
      if (listenHost !== undefined) this.#seats.push({ endpoint, listenHost, server: undefined });
    }
    for (const seat of this.#seats) await this.#take(seat);
  }

  /**
   * Takes the listed ports of this machine that are free. One attempt; whoever notices that a master does not answer calls
   * it again. Never rejects.
   */
  tryTakeOver(): Promise<void> {
    this.#pass ??= this.#takeFree().finally(() => {
      this.#pass = undefined;
    });
    return this.#pass;
  }

  /** Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#pass;
    const servers = this.#seats.flatMap((seat) => seat.server ?? []);
    this.#seats = [];
    await Promise.all(servers.map((server) => server.stop()));
  }

  async #takeFree(): Promise<void> {
    for (const seat of this.#seats) {
      if (seat.server !== undefined || this.#stopped) continue;
      try {
        await this.#take(seat);
      } catch (error) {
        this.#env.log.log('warn', 'cannot take over as discovery master', { error: (error as Error).message });
      }
    }
  }

  async #take(seat: Seat): Promise<void> {
    const { memberTtl, heartbeatInterval } = this.#options;
    const server = new DiscoveryServer(seat.listenHost, seat.endpoint.port, {
      ...(memberTtl === undefined ? {} : { memberTtl }),
      ...(heartbeatInterval === undefined ? {} : { heartbeatInterval }),
      env: this.#env,
    });
    try {
      await server.start();
    } catch (error) {
      if (isPortTaken(error)) return;
      throw error;
    }
    seat.server = server;
    this.#env.log.log('info', 'this node is a discovery master', { address: formatEndpoint(seat.endpoint) });
    if (this.#stopped) await server.stop();
  }
}

function isPortTaken(error: unknown): boolean {
  return error instanceof ConfigError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
}
