import type { Environment } from '../base/environment.js';
import type { Endpoint } from '../base/network.js';
import { DirectoryClient } from '../directory/client.js';
import { DirectoryServer } from '../directory/server.js';
import { DirectoryShard } from '../directory/shard.js';
import type { RpcClient } from '../rpc/client.js';
import type { RpcServer } from '../rpc/server.js';
import type { NodeInfo } from '../types.js';
import { Announcer, type Publications } from './announcer.js';
import { AntiEntropy } from './anti-entropy.js';
import { LostStatements } from './lost-statements.js';
import { OwnerRings } from './owner-rings.js';
import { ShardUpkeep } from './shard-upkeep.js';

export interface NodeDirectoryOptions {
  readonly self: NodeInfo;
  readonly vnodes: number;
  readonly replicas: number;
  /** Whether what a former owner of a key knows may be used, see {@link DirectoryClient}. */
  readonly asksFormerOwners: boolean;
  /** After so long every node goes by a change of members. */
  readonly settleMs: number;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly isLive: (nodeId: string, incarnation: number) => boolean;
  readonly rpc: RpcClient;
  readonly env: Environment;
}

/** One node's part in the directory: its shard, its client, and what keeps both in step with the members. */
export class NodeDirectory {
  readonly client: DirectoryClient;
  readonly #shard: DirectoryShard;
  readonly #announcer: Announcer;
  readonly #upkeep: ShardUpkeep;
  readonly #rings: OwnerRings;
  readonly #lost: LostStatements;
  readonly #replicas: number;
  readonly #env: Environment;
  #antiEntropy: AntiEntropy | undefined;

  constructor(options: NodeDirectoryOptions) {
    const { self, vnodes, replicas, settleMs, endpointOf, isLive, rpc, env } = options;
    const { nodeId, incarnation } = self;
    this.#replicas = replicas;
    this.#env = env;
    this.#rings = new OwnerRings(vnodes);
    const ring = this.#rings.make([nodeId]);
    this.#shard = new DirectoryShard({ isLive });
    this.client = new DirectoryClient(ring, endpointOf, replicas, {
      nodeId,
      incarnation,
      rpc,
      localShard: this.#shard,
      // Former owners forget after the delay, by their own clocks and by the news that reached them later.
      formerRingMs: 2 * settleMs,
      asksFormerOwners: options.asksFormerOwners,
      env,
    });
    const initial = { ring, incarnations: new Map([[nodeId, incarnation]]) };
    this.#announcer = new Announcer({ directory: this.client, replicas, initial, env });
    this.#upkeep = new ShardUpkeep({ shard: this.#shard, nodeId, replicas, pruneDelayMs: settleMs, clock: env.clock });
    this.#upkeep.start();
    this.#lost = new LostStatements({ nodeId, rpc, env, endpointOf, isLive });
  }

  /** Keys in the own shard. */
  get keys(): number {
    return this.#shard.stats().keys;
  }

  /** Answers for the own shard. */
  attach(server: RpcServer): void {
    new DirectoryServer({ shard: this.#shard }).attach(server);
    LostStatements.handle(server, (ownerId) => this.#announcer.announceTo(ownerId));
  }

  announceFrom(publications: Publications): void {
    this.#announcer.announceFrom(publications);
    const { client: directory } = this;
    this.#antiEntropy = new AntiEntropy({ directory, publications, replicas: this.#replicas, env: this.#env });
    this.#antiEntropy.start();
  }

  /**
   * The other nodes had dropped this one, which goes on as another start of itself: what its shard was told before is out of
   * date, and told again by those who see it join; its own pages are announced to everybody.
   */
  restartAs(incarnation: number): void {
    this.#shard.clear();
    this.client.restartAs(incarnation);
    this.#announcer.announceAll();
  }

  /** Another node is the member of this one's id: nothing is announced as long as that is so, and everything after it. */
  setReplaced(isReplaced: boolean): void {
    this.client.setSilent(isReplaced);
    if (!isReplaced) this.#announcer.announceAll();
  }

  /** Other nodes may have dropped what this one had announced. */
  announceAll(): void {
    this.#announcer.announceAll();
  }

  /** Goes by the new members from now on. */
  membersChanged(before: ReadonlyMap<string, NodeInfo>, after: ReadonlyMap<string, NodeInfo>): void {
    for (const { nodeId, incarnation } of before.values()) {
      if (after.get(nodeId)?.incarnation !== incarnation) this.#shard.dropNode(nodeId, incarnation);
    }
    const ring = this.#rings.make([...after.keys()]);
    this.client.setRing(ring);
    const incarnations = new Map([...after].map(([id, node]) => [id, node.incarnation]));
    this.#announcer.ownersChanged({ ring, incarnations });
    this.#upkeep.ownersChanged(ring);
    this.#rings.keepFor([this.client, this.#announcer, this.#upkeep]);
    this.#lost.membersChanged(before, after);
  }

  async stop(): Promise<void> {
    this.#upkeep.stop();
    this.#lost.stop();
    this.#antiEntropy?.stop();
    await this.#announcer.stop();
  }
}
