import type { ClusterReport } from '../metrics/node-report.js';
import { type Answer, type Api, Connection } from './api.js';
import { recall, remember } from './choices.js';
import { RANGES, type Range } from './data/columns.js';
import { amount } from './data/counts.js';
import { EventLog } from './data/event-log.js';
import { History, type Past, pastOf } from './data/history.js';
import { isGone, lifetimesOf, type Member, Members, memberLine } from './data/members.js';
import type { Point } from './data/points.js';
import type { Mark } from './views/chart.js';
import { ChartsView, type ChartTime } from './views/charts-view.js';
import { ClientsView } from './views/clients-view.js';
import { CompareView } from './views/compare-view.js';
import { make, part, setAttribute, setHidden, setText } from './views/dom.js';
import { EventsView } from './views/events-view.js';
import { formatMoment } from './views/format.js';
import { HeadlineView } from './views/headline-view.js';
import { HealthView } from './views/health-view.js';
import { MembersView } from './views/members-view.js';
import { NodeFactsView } from './views/node-facts-view.js';
import { TotalsView } from './views/totals-view.js';

const RANGE_KEY = 'meshcache.range';

/** Milliseconds between two attempts to fetch the nodes' history, and between two refreshes of a long range. */
const FETCH_GAP_MS = 10_000;

const CLUSTER = 'cluster';

const NODE_PREFIX = 'node=';

/** The page, which shows the answers of the node. */
export class Dashboard {
  readonly #timeline: Timeline;
  readonly #members = new Members();
  readonly #log = new EventLog();
  readonly #connection = new Connection();
  readonly #scope: Scope;
  readonly #headline = new HeadlineView(part('headline', HTMLElement));
  readonly #facts = new NodeFactsView(part('facts', HTMLElement));
  readonly #charts = new ChartsView(part('charts', HTMLElement));
  readonly #compare = new CompareView();
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
  readonly #chartsNote = part('charts-note', HTMLElement);
  #last: ClusterReport | undefined;
  #eventsShownFor: string | null | undefined;

  constructor(api: Api) {
    this.#timeline = new Timeline(api, () => this.#show());
    this.#addRanges(part('ranges', HTMLElement));
    part('charts', HTMLElement).append(this.#compare.element);
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
    if (answer.kind !== 'report' || !this.#timeline.record(answer.report, nowMs)) return;
    this.#last = answer.report;
    this.#announce(this.#members.update(answer.report));
    this.#logEvents(answer.report);
    this.#show();
  }

  /** Redraws the charts after the colours have changed. */
  redraw(): void {
    this.#charts.redraw();
    this.#compare.redraw();
  }

  #addRanges(group: HTMLElement): void {
    const buttons = RANGES.map((range) => {
      const button = make('button', { text: range.label, attributes: { type: 'button' } });
      button.addEventListener('click', () => {
        this.#timeline.choose(range, Date.now());
        showPressed();
        this.#show();
      });
      return button;
    });
    const showPressed = (): void => {
      for (const [i, button] of buttons.entries()) {
        setAttribute(button, 'aria-pressed', String(RANGES[i] === this.#timeline.range));
      }
    };
    showPressed();
    group.append(...buttons);
  }

  #logEvents({ nodes, member_events, member_ttl_s }: ClusterReport): void {
    let isNew = this.#log.addMemberEvents(member_events ?? [], member_ttl_s);
    for (const node of nodes) {
      if (node.state !== 'up') continue;
      const { incarnation, events = [], member_events } = node.report;
      isNew = this.#log.add(node.node_id, amount(incarnation), events, member_events !== undefined) || isNew;
    }
    if (isNew) this.#eventsShownFor = undefined;
  }

  #show(): void {
    if (this.#last === undefined) return;
    const { isLost, lostSinceMs: silentSinceMs } = this.#connection;
    const { time_ms: timeMs, member_ttl_s: ttlS } = this.#last;
    setHidden(this.#report, false);
    setAttribute(this.#report, 'data-stale', String(isLost));
    const nodeId = this.#scope.nodeId;
    const all = this.#members.list();
    const shown = nodeId === null ? all : all.filter((member) => member.nodeId === nodeId);
    this.#scope.update(all);
    setText(this.#scopeNote, scopeNote(nodeId, all));
    const lines = all.map(memberLine);
    this.#showHeadline(nodeId, shown);
    this.#facts.update(nodeId === null ? undefined : shown[0]);
    this.#showCharts(nodeId, all);
    this.#membersView.update(lines, isLost);
    this.#clients.update(shown);
    this.#health.update(shown, { timeMs, ttlS, silentSinceMs });
    const counted = nodeId === null ? all.filter(({ state }) => state === 'up') : shown;
    this.#totals.update(counted.flatMap(({ report }) => (report === undefined ? [] : [report])));
    if (this.#eventsShownFor !== nodeId) {
      this.#eventsShownFor = nodeId;
      this.#events.show(this.#log.newest(nodeId));
    }
  }

  #showHeadline(nodeId: string | null, shown: readonly Member[]): void {
    const isAnyUp = shown.some(({ state }) => state === 'up');
    this.#headline.update({
      range: this.#timeline.points(nodeId),
      words: this.#timeline.range.words,
      latest: isAnyUp ? this.#timeline.latest(nodeId) : [],
      lifetimeS: lifetimesOf(shown.map(memberLine)),
    });
  }

  #showCharts(nodeId: string | null, all: readonly Member[]): void {
    const { range } = this.#timeline;
    const marks = this.#log.newest(nodeId).flatMap((event): Mark[] => {
      if (!event.isOfMember || event.text === 'joined') return [];
      return [{ timeS: event.timeMs / 1000, isLoss: event.level === 'error' }];
    });
    const time: ChartTime = { range, nowMs: this.#last?.time_ms ?? 0, marks };
    const fromS = time.nowMs / 1000 - range.minutes * 60;
    const isMarked = (wanted: boolean): boolean =>
      marks.some(({ timeS, isLoss }) => isLoss === wanted && timeS >= fromS);
    const lost = isMarked(true) ? '; a red line marks the time at which a node was lost' : '';
    const left = isMarked(false) ? '; a dashed line marks the time at which a node left' : '';
    setText(this.#chartsNote, `${range.words}${lost}${left}`);
    this.#charts.update(this.#timeline.points(nodeId), time);
    const nodes = nodeId === null ? all : all.filter((member) => member.nodeId === nodeId || !isGone(member));
    const lines = nodes.map((member) => ({ nodeId: member.nodeId, points: this.#timeline.points(member.nodeId) }));
    this.#compare.update(lines, this.#timeline.points(null), time);
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

/** A note that says which nodes' figures are shown, and from when. */
function scopeNote(nodeId: string | null, members: readonly Member[]): string {
  if (nodeId === null) {
    const present = members.filter((member) => !isGone(member)).length;
    const up = members.filter(({ state }) => state === 'up').length;
    return up === present ? `Sum of all ${up} nodes.` : `Sum of the ${up} of ${present} nodes that answer.`;
  }
  const member = members.find((one) => one.nodeId === nodeId);
  if (member === undefined) return 'No such node is a member.';
  const { state, sinceMs, report, reportMs } = member;
  if (state === 'up') return 'The figures of one node.';
  const figures =
    report === undefined ? 'it has given this page no figures' : `totals are from ${formatMoment(reportMs)}`;
  const words =
    state === 'unreachable'
      ? 'does not answer'
      : state === 'lost'
        ? 'is lost'
        : state === 'left'
          ? 'has left'
          : 'is gone';
  return `This node ${words} since ${formatMoment(sinceMs)}; ${figures}.`;
}

/**
 * The selected node; null stands for the whole cluster. The page's address contains it, so that the page can be
 * reloaded and shared.
 */
class Scope {
  readonly #select: HTMLSelectElement;
  readonly #options = new Map<string, HTMLOptionElement>();
  #nodeId: string | null = nodeIdOf(location.hash);

  constructor(select: HTMLSelectElement, onChange: () => void) {
    this.#select = select;
    select.append(make('option', { text: 'The whole cluster', attributes: { value: CLUSTER } }));
    select.addEventListener('change', () => {
      this.choose(select.value === CLUSTER ? null : select.value.slice(NODE_PREFIX.length));
      onChange();
    });
    addEventListener('hashchange', () => {
      this.#nodeId = nodeIdOf(location.hash);
      this.#showChoice();
      onChange();
    });
  }

  get nodeId(): string | null {
    return this.#nodeId;
  }

  choose(nodeId: string | null): void {
    this.#nodeId = nodeId;
    const hash = nodeId === null ? '' : `#${NODE_PREFIX}${encodeURIComponent(nodeId)}`;
    history.replaceState(null, '', `${location.pathname}${hash}`);
    this.#showChoice();
  }

  /** Updates the list of nodes. The selected node stays in it even if it is not known. */
  update(members: readonly Member[]): void {
    const labels = new Map(members.map((member) => [member.nodeId, labelOf(member)]));
    if (this.#nodeId !== null && !labels.has(this.#nodeId)) labels.set(this.#nodeId, `${this.#nodeId} (not known)`);
    for (const [nodeId, option] of this.#options) {
      if (labels.has(nodeId)) continue;
      option.remove();
      this.#options.delete(nodeId);
    }
    for (const [nodeId, label] of labels) {
      let option = this.#options.get(nodeId);
      if (option === undefined) {
        option = make('option', { attributes: { value: `${NODE_PREFIX}${nodeId}` } });
        this.#options.set(nodeId, option);
        this.#select.append(option);
      }
      setText(option, label);
    }
    this.#showChoice();
  }

  #showChoice(): void {
    const value = this.#nodeId === null ? CLUSTER : `${NODE_PREFIX}${this.#nodeId}`;
    if (this.#select.value !== value) this.#select.value = value;
  }
}

function labelOf({ nodeId, state, isThis }: Member): string {
  if (state !== 'up') return `${nodeId} (${state === 'unreachable' ? 'does not answer' : state})`;
  return isThis ? `${nodeId} (this node)` : nodeId;
}

function nodeIdOf(hash: string): string | null {
  if (!hash.startsWith(`#${NODE_PREFIX}`)) return null;
  try {
    return decodeURIComponent(hash.slice(NODE_PREFIX.length + 1));
  } catch {
    return null;
  }
}

/**
 * The figures over time. The shortest range starts with the nodes' history and grows with every poll; the longer ranges
 * are fetched periodically.
 */
class Timeline {
  readonly #api: Api;
  readonly #onFetched: () => void;
  readonly #live = new History();
  #range: Range;
  #past: Past | undefined;
  readonly #fetchedMs = new Map<number, number>();
  #isFetching = false;
  #isLiveBehind = true;

  /** `onFetched` is called when there is more to show. */
  constructor(api: Api, onFetched: () => void) {
    this.#api = api;
    this.#onFetched = onFetched;
    const stored = recall('sessionStorage', RANGE_KEY);
    this.#range = RANGES.find(({ minutes }) => String(minutes) === stored) ?? RANGES[0];
  }

  get range(): Range {
    return this.#range;
  }

  choose(range: Range, nowMs: number): void {
    this.#range = range;
    remember('sessionStorage', RANGE_KEY, String(range.minutes));
    this.#past = undefined;
    this.#fetchedMs.delete(range.stepS);
    void this.#fetch(nowMs);
  }

  /**
   * Adds a report, and fetches missing history; false for a report that was seen before. `nowMs` is the reader's clock.
   */
  record(report: ClusterReport, nowMs: number): boolean {
    if (this.#live.isBehind(report.time_ms)) this.#isLiveBehind = true;
    const isNew = this.#live.record(report);
    void this.#fetch(nowMs);
    return isNew;
  }

  /** Points in the chosen range of one node, or of all nodes if `nodeId` is null. */
  points(nodeId: string | null): readonly Point[] {
    if (this.#range === RANGES[0]) return this.#live.points(nodeId);
    return (nodeId === null ? this.#past?.cluster : this.#past?.nodes.get(nodeId)) ?? [];
  }

  /** The newest points, regardless of the chosen range. */
  latest(nodeId: string | null): readonly Point[] {
    return this.#live.points(nodeId);
  }

  async #fetch(nowMs: number): Promise<void> {
    const stepS = this.#wantedStep(nowMs);
    if (stepS === undefined || this.#isFetching) return;
    this.#isFetching = true;
    this.#fetchedMs.set(stepS, nowMs);
    const history = await this.#api.history(stepS);
    this.#isFetching = false;
    if (history === undefined) return;
    const past = pastOf(history);
    if (stepS === RANGES[0].stepS) {
      this.#live.begin(past);
      this.#isLiveBehind = false;
    } else if (stepS === this.#range.stepS) {
      this.#past = past;
    }
    this.#onFetched();
  }

  /** The step of the history to fetch next; undefined if none is due. */
  #wantedStep(nowMs: number): number | undefined {
    const isDue = (stepS: number): boolean =>
      nowMs - (this.#fetchedMs.get(stepS) ?? Number.NEGATIVE_INFINITY) >= FETCH_GAP_MS;
    if (this.#isLiveBehind && isDue(RANGES[0].stepS)) return RANGES[0].stepS;
    if (this.#range !== RANGES[0] && isDue(this.#range.stepS)) return this.#range.stepS;
    return undefined;
  }
}
