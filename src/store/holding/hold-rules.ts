import {
  COPIES_POOL_FRACTION,
  COPY_REQUEST_TARGET_BYTES,
  COPY_REQUESTS_MAX_COUNT,
  PLACEMENT_REQUEST_TARGET_BYTES,
  PLACEMENT_REQUESTS_AT_ONCE_COUNT,
  PLACEMENT_REQUESTS_MAX_COUNT,
  PROMOTE_POOL_FRACTION,
  PROMOTE_ROUND_MAX_BYTES,
} from '../../base/limits.js';
import type { NodeRole } from '../../types.js';
import type { AskedReason } from '../ground/other-holders.js';

/** Why a node copies pages of other nodes on its own: it reads them often, a client pins them or wants them early. */
export type OwnReason = 'hot' | 'pin' | 'prefetch';

export type HoldReason = AskedReason | OwnReason;

/**
 * How a held page is kept. `leased`: copied from this node's disk into the pool until its readers have read it (see
 * `Promoter`). `passing`: in a limited part of the pool, as a second location. `lasting`: like pages that this node's
 * program has set, in the whole pool and on the disk.
 */
export type Stay = 'leased' | 'passing' | 'lasting';

/** Where pages that are not in the pool come from: this node's disk, another node, or the object store. */
export type PageSource = 'disk' | 'nodes' | 'objects';

export interface HoldRule {
  /** How the page is kept on a node of each role; null: nodes of that role do not hold pages for this reason. */
  readonly stay: Readonly<Record<NodeRole, Stay | null>>;
  /** Whether the page replaces the earliest passing pages if there is no room for it. */
  readonly replaces: boolean;
  /**
   * The sources of pages that are not in the pool, the first one to be asked first. A page on this node's disk counts as
   * held if the disk is among them; pages that are read often or handed over must be in memory, within the share for
   * copies.
   */
  readonly sources: readonly PageSource[];
  /** Whether this node hands the page over in turn when it drains, because others have read it at the asker. */
  readonly handsOn: boolean;
  /** Target bytes of the pages of one request; a larger page is a request of its own. */
  readonly requestTargetBytes: number;
}

const PASSING = { peer: 'passing', storage: 'passing' } as const;

/** The rules for each reason. */
export const HOLD_RULES: Readonly<Record<HoldReason, HoldRule>> = {
  promotion: {
    stay: { peer: 'leased', storage: 'leased' },
    replaces: false,
    sources: ['disk'],
    handsOn: false,
    requestTargetBytes: Number.POSITIVE_INFINITY,
  },
  handover: {
    stay: { peer: 'passing', storage: 'lasting' },
    replaces: false,
    sources: ['nodes'],
    handsOn: true,
    requestTargetBytes: COPY_REQUEST_TARGET_BYTES,
  },
  placement: {
    stay: { peer: null, storage: 'lasting' },
    replaces: false,
    sources: ['disk', 'nodes'],
    handsOn: false,
    requestTargetBytes: PLACEMENT_REQUEST_TARGET_BYTES,
  },
  hot: {
    stay: PASSING,
    replaces: true,
    sources: ['nodes'],
    handsOn: false,
    requestTargetBytes: COPY_REQUEST_TARGET_BYTES,
  },
  prefetch: {
    stay: PASSING,
    replaces: true,
    sources: ['disk', 'nodes', 'objects'],
    handsOn: false,
    requestTargetBytes: COPY_REQUEST_TARGET_BYTES,
  },
  pin: {
    stay: PASSING,
    replaces: true,
    sources: ['disk', 'nodes', 'objects'],
    handsOn: false,
    requestTargetBytes: COPY_REQUEST_TARGET_BYTES,
  },
};

/** Limits of held pages, by how they are kept. */
export interface StayLimits {
  /** Part of the pool that such pages may take. */
  readonly poolFraction: number;
  /** Requests worked on at a time; the others wait. */
  readonly atOnceCount: number;
  /** Requests running or waiting; further ones are refused. */
  readonly requestsMaxCount: number;
  /** Bytes of pages read in one go; a larger page is read by itself. */
  readonly sliceBytes: number;
}

export const STAY_LIMITS: Readonly<Record<Stay, StayLimits>> = {
  // Requests wait for room in order of arrival, and are answered after a short time in any case.
  leased: {
    poolFraction: PROMOTE_POOL_FRACTION,
    atOnceCount: Number.POSITIVE_INFINITY,
    requestsMaxCount: Number.POSITIVE_INFINITY,
    sliceBytes: PROMOTE_ROUND_MAX_BYTES,
  },
  // Requests run one at a time when they make room, so that together they stay within their part of the pool.
  passing: {
    poolFraction: COPIES_POOL_FRACTION,
    atOnceCount: 1,
    requestsMaxCount: COPY_REQUESTS_MAX_COUNT,
    sliceBytes: COPY_REQUEST_TARGET_BYTES,
  },
  lasting: {
    poolFraction: 1,
    atOnceCount: PLACEMENT_REQUESTS_AT_ONCE_COUNT,
    requestsMaxCount: PLACEMENT_REQUESTS_MAX_COUNT,
    sliceBytes: PLACEMENT_REQUEST_TARGET_BYTES,
  },
};
