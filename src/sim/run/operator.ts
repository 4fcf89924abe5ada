import { securedEnvironment } from '../../net/credentials/secured-environment.js';
import { DRAIN_METHOD } from '../../node/leaving/drain.js';
import { RpcClient } from '../../rpc/client.js';
import type { Scenario } from '../scenario/scenario.js';
import type { SimProcess } from '../world/sim-process.js';
import type { World } from '../world/world.js';
import { controlPort } from './node-settings.js';
import type { SimNode } from './sim-node.js';

/** An operator who works on a cluster from outside, as with the command line. */
export class Operator {
  readonly #world: World;
  readonly #scenario: Scenario;
  #process: SimProcess | undefined;
  #rpc: RpcClient | undefined;

  constructor(world: World, scenario: Scenario) {
    this.#world = world;
    this.#scenario = scenario;
  }

  /** Drains a node. Resolves when it has left, goes down, or after `timeoutMs`. */
  async drain(node: SimNode, timeoutMs: number): Promise<void> {
    const { store } = node;
    if (store === undefined) return;
    const process = this.#running();
    const endpoint = { host: node.host.name, port: controlPort(this.#scenario, node.number) };
    const asked = process.run(async () => {
      await this.#rpc?.call(endpoint, DRAIN_METHOD, { timeout_ms: timeoutMs }).catch(() => {});
    });
    await Promise.race([asked, this.#sleep(timeoutMs)]);
    await Promise.race([store.drained, this.#sleep(timeoutMs)]);
  }

  #running(): SimProcess {
    if (this.#process === undefined) {
      const secret = this.#scenario.shape.config.cluster_secret;
      this.#process = this.#world.host({ name: 'operator' }).start();
      const security = secret === undefined ? {} : { clusterSecret: [String(secret)] };
      this.#rpc = new RpcClient({ env: securedEnvironment(security, this.#process.environment) });
    }
    return this.#process;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.at(this.#world.nowMs + ms, resolve));
  }
}
