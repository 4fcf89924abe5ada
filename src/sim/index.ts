/**
 * The entry `meshcache/sim`: whole clusters of real stores in one process, on virtual time and from one seed.
 *
 *     import { runScenario, scenarioOf } from 'meshcache/sim';
 *
 *     const scenario = scenarioOf({ nodes: 4, durationMs: 60_000, faults: [
 *       { kind: 'power', atMs: 20_000, durationMs: 5_000, nodes: [2], peers: [], amount: 0 },
 *     ] });
 *     const { hash, violations, counts, series } = await runScenario(scenario);
 *
 * A {@link Scenario} is plain JSON: nodes, their shape, the network, a workload, faults. {@link runScenario} starts the
 * nodes, runs the workload and the faults, checks every read and every call, waits until the cluster has recovered, and
 * closes it. The same scenario gives the same result and the same hash, in every process. With `route`, a program
 * decides which node serves a request; with `program`, it calls the stores itself. {@link World} is the layer below:
 * hosts with clocks, disks and a network, for any code that takes an `Environment`.
 *
 * A process can do one run at a time.
 *
 * @module meshcache/sim
 */
export { CALL_BOUNDS_MS, type CallKind } from './check/call-watch.js';
export type {
  CheckedStore,
  CheckedStoreOptions,
  OnContent,
  PageToPin,
  PageToSet,
  SetTerms,
} from './check/checked-store.js';
export type { FollowedPages } from './check/followed-pages.js';
export type { ProcessId } from './check/statements.js';
export { VIOLATION_KINDS, type Violation, type ViolationKind } from './check/violations.js';
export type { RecoveryTimes } from './run/recovery.js';
export type { RequestOutcome, RequestServing, SimRequest } from './run/requests.js';
export { type HostTraffic, type RunOptions, runScenario, type ScenarioResult } from './run/run-scenario.js';
export type { Sample } from './run/series.js';
export { type ShrinkOptions, type Shrunk, shrink } from './run/shrink.js';
export type { Route, SimCluster, SimProgram } from './run/sim-cluster.js';
export type { SimNode, SimNodeRunning } from './run/sim-node.js';
export { FAULT_KINDS, type Fault, type FaultKind, type Join } from './scenario/faults.js';
export { type RandomScenarioOptions, randomScenario, withRandomFaults } from './scenario/random-scenario.js';
export {
  type NetworkSettings,
  SCENARIO,
  type Scenario,
  type ScenarioInit,
  type ScenarioParts,
  type Shape,
  scenarioOf,
} from './scenario/scenario.js';
export {
  CONVERSATIONS,
  type ConversationWorkload,
  MIXED,
  type MixedWorkload,
  type NoWorkload,
  TRACE,
  type TraceRequest,
  type TraceWorkload,
  type Workload,
} from './scenario/workload.js';
export { formatJournalLine, type Journal, type JournalLine } from './world/journal.js';
export type { EventPlan } from './world/kernel/event-heap.js';
export type { RunEnd, RunLimits } from './world/kernel/scheduler.js';
export { NETWORK_SHAPE, type NetworkShape } from './world/network/link.js';
export type { EtcdEntry, EtcdLease, EtcdSnapshot, EtcdState, SimEtcd } from './world/sim-etcd.js';
export type { HostOptions, SimHost } from './world/sim-host.js';
export type { NamesState, SimNames } from './world/sim-names.js';
export type { ProcessCounts, SimProcess } from './world/sim-process.js';
export { SimulatedFailure, World, type WorldOptions } from './world/world.js';
