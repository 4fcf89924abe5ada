import { join } from 'node:path';
import type { EngineSettings } from './engine-driver.js';

/** Where an engine finds pages: sockets of nodes, and a folder for the engine's own files. */
interface Places {
  readonly ownSocket: string;
  readonly otherSocket: string;
  /** Socket of a node whose pool is too small for the pages, so that most of them are on its disk. */
  readonly diskSocket: string;
  readonly filesFolder: string;
}

/** An engine that computes all prompts and stores their pages. */
interface Writer {
  readonly settings: EngineSettings;
  /** Whether it is the reference for cold and cached times. Another writer only fills another store. */
  readonly isMeasured: boolean;
  /** Index of the LMCache server that it uses in `servers` of the plan. */
  readonly server?: number;
}

/** An engine that has computed nothing and reads what a writer has stored. */
export interface Reader {
  readonly name: string;
  readonly settings: EngineSettings;
  readonly server?: number;
}

export interface EnginePlan {
  /** The driver's module in the Python package `engine_bench`. */
  readonly module: string;
  /** Whether the host memory pool can be measured, because the engine can drop its device cache alone. */
  readonly hasHostPool: boolean;
  /** Storage adapters of the LMCache servers to start; undefined stands for a server without one. */
  readonly servers?: readonly (object | undefined)[];
  readonly writers: readonly Writer[];
  /** Engines that read the stored prompts in turn. */
  readonly readers: readonly Reader[];
}

interface PlanSettings {
  readonly model: string;
  readonly maxTokens: number;
  readonly poolBytes: number;
  readonly places: Places;
}

export const ENGINES = ['vllm', 'sglang', 'lmcache'] as const;
export type EngineName = (typeof ENGINES)[number];

export const ENGINE_PLANS: Readonly<Record<EngineName, (settings: PlanSettings) => EnginePlan>> = {
  vllm: vllmPlan,
  sglang: sglangPlan,
  lmcache: lmcachePlan,
};

/** One writer stores into all tiers; each reader has one of them. */
function vllmPlan({ model, maxTokens, poolBytes, places }: PlanSettings): EnginePlan {
  const files = { type: 'fs', root_dir: join(places.filesFolder, 'vllm') };
  const node = (client_socket: string) => ({
    type: 'MeshCacheTier',
    module_path: 'meshcache.vllm',
    client_socket,
    timeout: 20,
  });
  const settings = (...tiers: object[]) => ({ model, max_tokens: maxTokens, pool_bytes: poolBytes, tiers });
  return {
    module: 'vllm_driver',
    hasHostPool: true,
    writers: [{ isMeasured: true, settings: settings(node(places.ownSocket), files, node(places.diskSocket)) }],
    readers: [
      { name: "vLLM's fs tier", settings: settings(files) },
      { name: 'own node', settings: settings(node(places.ownSocket)) },
      { name: 'other node', settings: settings(node(places.otherSocket)) },
      { name: "own node's disk", settings: settings(node(places.diskSocket)) },
    ],
  };
}

/** SGLang supports one storage backend at a time, so each backend has a writer of its own. */
function sglangPlan({ model, maxTokens, places }: PlanSettings): EnginePlan {
  const node = (client_socket: string) => ({
    model,
    max_tokens: maxTokens,
    storage: 'dynamic',
    storage_config: {
      backend_name: 'meshcache',
      module_path: 'meshcache.sglang',
      class_name: 'MeshCacheStorage',
      interface_v1: 1,
      allocator: 'shm',
      client_socket,
      timeout: 9,
    },
  });
  const files = { model, max_tokens: maxTokens, storage: 'file' };
  return {
    module: 'sglang_driver',
    hasHostPool: false,
    writers: [
      { isMeasured: true, settings: node(places.ownSocket) },
      { isMeasured: false, settings: files },
    ],
    readers: [
      { name: "SGLang's file backend", settings: files },
      { name: 'own node', settings: node(places.ownSocket) },
      { name: 'other node', settings: node(places.otherSocket) },
    ],
  };
}

/**
 * vLLM engines with LMCache servers. A server keeps what its engines have read, so every reader has a server of its
 * own, except the one that reads from the writer's server.
 */
function lmcachePlan({ model, maxTokens, poolBytes, places }: PlanSettings): EnginePlan {
  const settings = { model, max_tokens: maxTokens, pool_bytes: poolBytes };
  const node = (client_socket: string) => ({
    type: 'native_plugin',
    module_path: 'meshcache.lmcache',
    class_name: 'MeshCacheConnector',
    // The data type is the only option here that changes what vLLM computes.
    adapter_params: { client_socket, facts: { engine: 'vllm --dtype float32' } },
  });
  const files = { type: 'fs', base_path: join(places.filesFolder, 'lmcache') };
  return {
    module: 'vllm_driver',
    hasHostPool: false,
    servers: [node(places.ownSocket), files, files, node(places.ownSocket), node(places.otherSocket)],
    writers: [
      { isMeasured: true, settings, server: 0 },
      { isMeasured: false, settings, server: 1 },
    ],
    readers: [
      { name: "LMCache's fs adapter", settings, server: 2 },
      { name: "the writer's LMCache server (L1)", settings, server: 0 },
      { name: 'own node', settings, server: 3 },
      { name: 'other node', settings, server: 4 },
    ],
  };
}
