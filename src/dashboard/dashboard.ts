import type { ClusterReport } from '../metrics/node-report.js';
import type { Answer } from './api.js';
import { Connection } from './connection.js';
import { EventLog } from './data/event-log.js';
import { History, type Point } from './data/history.js';
import { amount } from './data/loose.js';
import { type Member, Members } from './data/members.js';
import { Scope } from './scope.js';
import { ChartsView } from './views/charts-view.js';
import { ClientsView } from './views/clients-view.js';
import { part, setAttribute, setHidden, setText } from './views/dom.js';
import { EventsView } from './views/events-view.js';
import { formatClock } from './views/format.js';
import { HeadlineView } from './views/headline-view.js';
import { HealthView } from './views/health-view.js';
import { MembersView } from './views/members-view.js';
import { TotalsView } from './views/totals-view.js';

/** The page: receives answers and shows them. */
export class Dashboard {
  readonly #history = new History();
  readonly #members = new Members();
  readonly #log = new EventLog();
  readonly #connection = new Connection();
  readonly #scope: Scope;
  readonly #headline = new HeadlineView(part('headline', HTMLElement));
  readonly #charts = new ChartsView(part('charts', HTMLElement));
  readonly #membersView: MembersView;
  readonly #clients = new ClientsView(part('clients-section', HTMLElement), part('clients', HTMLElement));
  readonly #events = new EventsView(part('events', HTMLElement));
  readonly #health = new HealthView(part('health', HTMLElement));
  readonly #totals = new TotalsView(part('totals', HTMLElement));
  readonly #banner = part('banner', HTMLElement);
  readonly #announcements = part('announcements', HTMLElement);
  readonly #pulse = part('pulse', HTMLElement);
  readonly #report = part('report', HTMLElement);
  readonly #scopeNote = part('scope-note', HTMLElement);
  #last: ClusterReport | undefined;
  #eventsShownFor: string | null | undefined;

  constructor() {
    this.#scope = new Scope(part('scope', HTMLSelectElement), () => this.#show());
    this.#membersView = new MembersView(part('members', HTMLElement), (nodeId) => {
      this.#scope.choose(nodeId);
      this.#show();
      const isStill = matchMedia('(prefers-reduced-motion: reduce)').matches;
      scrollTo({ top: 0, behavior: isStill ? 'instant' : 'smooth' });
    });
  }

  /** Shows an answer; `nowMs` is the reader's clock. */
  take(answer: Answer, nowMs: number): void {
    const wasLost = this.#connection.isLost;
    this.#connection.note(answer, nowMs);
    this.#showConnection(answer);
    if (this.#connection.isLost !== wasLost) this.#show();
    if (answer.kind !== 'report' || !this.#history.record(answer.report)) return;
    this.#last = answer.report;
    this.#announce(this.#members.update(answer.report));
    for (const node of answer.report.nodes) {
      if (node.state !== 'up') continue;
      const isNew = this.#log.add(node.node_id, amount(node.report.incarnation), node.report.events ?? []);
      if (isNew) this.#eventsShownFor = undefined;
    }
    this.#show();
  }

  /** Redraws the charts after the colours have changed. */
  redraw(): void {
    this.#charts.redraw();
  }

  #show(): void {
    if (this.#last === undefined) return;
    const { isLost, lostSinceMs } = this.#connection;
    setHidden(this.#report, false);
    setAttribute(this.#report, 'data-stale', String(isLost));
    const nodeId = this.#scope.nodeId;
    const all = this.#members.list();
    const shown = nodeId === null ? all : all.filter((member) => member.nodeId === nodeId);
    this.#scope.update(all);
    setText(this.#scopeNote, scopeNote(nodeId, all));
    const points = this.#history.points(nodeId);
    const up = shown.flatMap(({ state, report }) => (state === 'up' && report !== undefined ? [report] : []));
    const keys = up.reduce((sum, { directory }) => sum + amount(directory?.keys), 0);
    this.#headline.update(up.length > 0 ? points : [], keys);
    this.#charts.update(points, this.#last.time_ms);
    this.#membersView.update(all, (id): readonly Point[] => this.#history.points(id), isLost);
    this.#clients.update(shown);
    this.#health.update(shown, lostSinceMs);
    const counted = nodeId === null ? all.filter(({ state }) => state === 'up') : shown;
    this.#totals.update(counted.flatMap(({ report }) => (report === undefined ? [] : [report])));
    if (this.#eventsShownFor !== nodeId) {
      this.#eventsShownFor = nodeId;
      this.#events.show(this.#log.newest(nodeId));
    }
  }

  #showConnection({ kind }: Answer): void {
    const { banner, isLost } = this.#connection;
    setHidden(this.#banner, banner === null);
    setText(this.#banner, banner ?? '');
    this.#pulse.dataset.live = String(kind === 'report' && !isLost);
    setText(this.#pulse, kind === 'unauthorized' ? 'token needed' : isLost ? 'not live' : 'live');
    document.title = `${isLost ? 'No answer: ' : ''}${this.#last?.node_id ?? 'meshcache'} · meshcache`;
  }

  #announce(changes: readonly string[]): void {
    if (changes.length > 0) setText(this.#announcements, `${changes.join('. ')}.`);
  }
}

/** A note about whose figures are shown, and from when. */
function scopeNote(nodeId: string | null, members: readonly Member[]): string {
  if (nodeId === null) {
    const present = members.filter(({ state }) => state !== 'gone').length;
    const up = members.filter(({ state }) => state === 'up').length;
    return up === present ? `Sum of all ${up} nodes.` : `Sum of the ${up} of ${present} nodes that answer.`;
  }
  const member = members.find((one) => one.nodeId === nodeId);
  if (member === undefined) return 'No such node is a member.';
  const { state, sinceMs, report, reportMs } = member;
  if (state === 'up')
    return `Version ${report?.version ?? 'unknown'}, control endpoint ${report?.control_endpoint ?? 'unknown'}.`;
  const figures = report === undefined ? 'it has given no figures' : `totals are from ${formatClock(reportMs)}`;
  return `This node is ${state} since ${formatClock(sinceMs)}; ${figures}.`;
}
