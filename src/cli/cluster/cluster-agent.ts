/*
 * One node process of a local cluster, started by cluster.ts with an IPC channel. The process ends with that channel,
 * so that nothing is left behind however the starting program ends; after `keep` it runs until SIGTERM.
 */

import { MeshCacheStore } from '../../node/meshcache-store.js';
import { systemClock } from '../../system/system-clock.js';
import { logNodeWarnings, logUncaughtErrors } from '../../system/system-log.js';
import type { AgentCommand, AgentReply, AgentSetup, AgentStarted, AgentStatus, KeptLoad } from './agent-protocol.js';
import { HostBuffer, RequestRunner } from './request-runner.js';

/** How long a node may take to close before its process exits with status 1, in milliseconds. */
const NODE_END_TIMEOUT_MS = 8_000;
const MEMBERS_POLL_MS = 25;

class Agent {
  #store: MeshCacheStore | undefined;
  #runner: RequestRunner | undefined;
  /** Time of the current request in a trace, in milliseconds; undefined: it has none. */
  #atMs: number | undefined;
  /** Reads of other nodes' pages that wait for `tell-reads`, in order. */
  #untoldReads: { readonly atMs: number; readonly tell: () => void }[] = [];
  #isKept = false;
  #isClosing = false;

  async execute(command: AgentCommand): Promise<unknown> {
    switch (command.kind) {
      case 'start':
        return this.#start(command.setup);
      case 'await-members':
        return this.#awaitMembers(command.count);
      case 'run':
        if (this.#runner === undefined) throw new Error('run before start');
        this.#atMs = command.atMs;
        return this.#runner.run(command.requests);
      case 'tell-reads':
        return this.#tellReads(command.untilMs);
      case 'status':
        return this.#status();
      case 'keep':
        this.#isKept = true;
        void this.#play(command.load);
        return undefined;
      case 'close':
        await this.#store?.close();
        return undefined;
    }
  }

  /** Closes the node and ends the process. */
  async end(exitStatus: number): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    systemClock.after(NODE_END_TIMEOUT_MS, () => process.exit(1));
    await this.#store?.close();
    process.exit(exitStatus);
  }

  onDisconnect(): void {
    if (!this.#isKept) void this.end(0);
  }

  /** Repeats the requests. A wrong byte or a failure ends the process, so that it does not go unnoticed. */
  async #play({ requests, pauseMs }: KeptLoad): Promise<void> {
    try {
      for (let next = 0; requests.length > 0 && !this.#isClosing; next = (next + 1) % requests.length) {
        const result = await this.#runner?.run([requests[next] as readonly string[]]);
        if (result !== undefined && result.counts.wrongBytes > 0) return await this.end(1);
        await new Promise<void>((resolve) => {
          systemClock.after(pauseMs, resolve);
        });
      }
    } catch {
      // A closing node rejects requests; `end` does nothing then.
      await this.end(1);
    }
  }

  async #start(setup: AgentSetup): Promise<AgentStarted> {
    const store = await MeshCacheStore.create({
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: setup.components === 1,
      extraConfig: setup.config,
    });
    this.#store = store;
    const buffer = new HostBuffer(setup);
    await store.registerMemPoolHost(buffer);
    this.#runner = new RequestRunner(store, buffer, { pageBytes: setup.pageBytes, clock: systemClock });
    store.runtime.notices.deferReads((tell) => {
      if (this.#atMs === undefined) tell();
      else this.#untoldReads.push({ atMs: this.#atMs, tell });
    });
    const { nodeId, isMeta, transport, transportReason } = store.runtime;
    const { protocol } = transport;
    return { nodeId, pid: process.pid, metricsEndpoint: store.metricsEndpoint, isMeta, protocol, transportReason };
  }

  async #tellReads(untilMs: number): Promise<void> {
    const later = this.#untoldReads.findIndex(({ atMs }) => atMs > untilMs);
    const due = this.#untoldReads.splice(0, later < 0 ? this.#untoldReads.length : later);
    for (const { tell } of due) tell();
    await this.#store?.runtime.notices.tellReads();
  }

  /** Has no deadline; the calling program has one. */
  async #awaitMembers(count: number): Promise<void> {
    while (!this.#isClosing && (this.#store?.runtime.members().size ?? 0) < count) {
      await new Promise((resolve) => setTimeout(resolve, MEMBERS_POLL_MS));
    }
  }

  #status(): AgentStatus {
    const stats = this.#store?.stats();
    return {
      poolEntries: stats?.poolEntries ?? 0,
      poolUsedBytes: stats?.poolUsedBytes ?? 0,
      poolCapacityBytes: stats?.poolCapacityBytes ?? 0,
      evictions: stats?.evictions ?? 0,
      checksumFailures: stats?.checksumFailures ?? 0,
      rssBytes: process.memoryUsage.rss(),
      hits: stats?.hits ?? { local: 0, remote: 0, disk: 0 },
      disk: stats?.disk ?? null,
    };
  }
}

function describeError(error: unknown): { message: string; stack?: string } {
  return error instanceof Error ? { message: error.message, stack: error.stack } : { message: String(error) };
}

function reply(message: AgentReply): void {
  // If the program is already gone, the disconnect event ends this process.
  if (process.connected) process.send?.(message, () => {});
}

const agent = new Agent();
// Ctrl-C in a terminal reaches the whole process group and is ignored here: the program closes its cluster in order, or
// its end disconnects this process.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => void agent.end(0));
process.on('disconnect', () => agent.onDisconnect());
// A kept node outlives the program that read its output, so writes may fail.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});
logNodeWarnings();
logUncaughtErrors();
process.on('message', (command: AgentCommand) => {
  agent.execute(command).then(
    (value) => reply({ id: command.id, value }),
    (error: unknown) => reply({ id: command.id, error: describeError(error) }),
  );
});
