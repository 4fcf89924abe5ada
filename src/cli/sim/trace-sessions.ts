import { formatSize } from '../../base/sizes.js';
import { formatCount, formatTable } from '../../command/table.js';
import type { PlacementOutcome } from '../../core/index.js';
import type { ReportTable } from '../../sim/report/report.js';
import { quantile } from '../load/load.js';
import type { TraceRequest } from '../load/trace.js';

/** Results of one simulated cluster by session, for traces that name sessions. */
export interface SimTraceSessions {
  /** Sessions with at least one request. */
  readonly count: number;
  /** Hit rates of the sessions: each counts once, however long it is. */
  readonly hit_rate_mean: number;
  readonly hit_rate_p10: number;
  readonly hit_rate_p50: number;
  /** Requests that found no page, although an earlier request had asked for their first ones, and set them. */
  readonly empty_requests: number;
  /** Share of all requests that these are. */
  readonly empty_request_share: number;
  /** Bytes of pages that nodes read from each other, for each session. */
  readonly moved_bytes_mean: number;
}

interface SessionCounts {
  asked: number;
  hits: number;
}

/** Adds up the outcomes of the requests of one simulated cluster by session. */
export class SessionFigures {
  readonly #sessions = new Map<number, SessionCounts>();
  /** First pages of requests so far. Page ids are chained, so a page was asked for if and only if its first one was. */
  readonly #firstPages = new Set<number>();
  readonly #pageBytes: number;
  #requests = 0;
  #empty = 0;
  #moved = 0;

  constructor(pageBytes: number) {
    this.#pageBytes = pageBytes;
  }

  add({ session, hashIds }: Pick<TraceRequest, 'session' | 'hashIds'>, outcome: PlacementOutcome): void {
    const [first] = hashIds;
    if (session === undefined || first === undefined) return;
    const counts = this.#sessions.get(session) ?? { asked: 0, hits: 0 };
    this.#sessions.set(session, counts);
    counts.asked += hashIds.length;
    counts.hits += outcome.prefixHits;
    this.#requests++;
    this.#moved += outcome.remoteHits;
    if (outcome.prefixHits === 0 && this.#firstPages.has(first)) this.#empty++;
    this.#firstPages.add(first);
  }

  /** The figures; null if no request has named a session. */
  result(): SimTraceSessions | null {
    const count = this.#sessions.size;
    if (count === 0) return null;
    const rates = Float64Array.from(this.#sessions.values(), ({ asked, hits }) => hits / asked).sort();
    return {
      count,
      hit_rate_mean: rounded(rates.reduce((sum, rate) => sum + rate, 0) / count),
      hit_rate_p10: rounded(quantile(rates, 0.1)),
      hit_rate_p50: rounded(quantile(rates, 0.5)),
      empty_requests: this.#empty,
      empty_request_share: rounded(this.#empty / this.#requests),
      moved_bytes_mean: Math.round((this.#moved * this.#pageBytes) / count),
    };
  }
}

/** The properties of a simulated cluster that the tables by session show. */
interface SessionsRun {
  readonly nodes: number;
  readonly pool_pages: number;
  readonly policy: string;
  readonly routing: string | null;
  readonly sessions: SimTraceSessions | null;
}

/** The table by session, with a line above it; empty for traces that do not name sessions. */
export function formatSessions(runs: readonly SessionsRun[]): string {
  const rows = runs.flatMap(({ nodes, pool_pages, policy, routing, sessions }) =>
    sessions === null
      ? []
      : {
          nodes,
          'pool pages': pool_pages,
          policy,
          routing: routing ?? '-',
          'mean hit rate': sessions.hit_rate_mean.toFixed(4),
          p10: sessions.hit_rate_p10.toFixed(4),
          p50: sessions.hit_rate_p50.toFixed(4),
          'found nothing': sessions.empty_request_share.toFixed(4),
          'moved per session': formatSize(sessions.moved_bytes_mean),
        },
  );
  if (rows.length === 0) return '';
  const played = `By session, ${formatCount(runs[0]?.sessions?.count ?? 0)} sessions played`;
  const nothing = 'found nothing: requests without a hit although their pages had been set before';
  return `\n\n${played}; ${nothing}.\n\n${formatTable(rows)}`;
}

/** The table by session of the HTML report; none for traces that do not name sessions. */
export function sessionsTables(runs: readonly SessionsRun[]): ReportTable[] {
  const rows = runs.flatMap(({ nodes, pool_pages, policy, routing, sessions }) => {
    if (sessions === null) return [];
    const { hit_rate_mean, hit_rate_p10, hit_rate_p50, empty_request_share, moved_bytes_mean } = sessions;
    const rates = [hit_rate_mean, hit_rate_p10, hit_rate_p50, empty_request_share].map((rate) => rate.toFixed(4));
    const size = [nodes, pool_pages].map(formatCount);
    return [[policy, routing ?? '–', ...size, ...rates, formatSize(moved_bytes_mean)]];
  });
  const numeric = ['Nodes', 'Pool', 'Mean hit rate', 'p10', 'p50', 'Found nothing', 'Moved per session'];
  const columns = [{ name: 'Policy' }, { name: 'Routing' }, ...numeric.map((name) => ({ name, isNumeric: true }))];
  const note =
    'Each session counts once. Found nothing: share of requests without a hit although their pages had been set before.';
  return rows.length === 0 ? [] : [{ kind: 'table', title: 'Hit rates of sessions', note, columns, rows }];
}

function rounded(value: number): number {
  return Number(value.toFixed(4));
}
