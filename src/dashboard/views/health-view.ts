import { isGone, type Member } from '../data/members.js';
import { isolated, make, setText } from './dom.js';
import { formatMoment } from './format.js';

/** Milliseconds for which a node that has left is still mentioned. */
const LEFT_SHOWN_MS = 10 * 60_000;

interface Trouble {
  readonly nodeId: string;
  readonly text: string;
  readonly isLoss: boolean;
}

interface Verdict {
  readonly status: 'ok' | 'fewer' | 'degraded' | 'lost' | 'unknown';
  readonly text: string;
}

interface HealthFigures {
  /** Clock of the answering node. */
  readonly timeMs: number;
  /** Seconds without a heartbeat after which a node is lost. */
  readonly ttlS: number | undefined;
  /** Time of the last answer by the reader's clock if the serving node is lost, else null. */
  readonly silentSinceMs: number | null;
}

/** States in plain words what is wrong, or that all is well. */
export class HealthView {
  readonly #verdict = make('p', { class: 'verdict' });
  readonly #list = make('ul', { class: 'troubles' });
  #shown = '';

  constructor(section: HTMLElement) {
    section.append(make('div', { class: 'card health' }, this.#verdict, this.#list));
  }

  /** Shows the health of these nodes. A lost node is trouble; a node that left properly is not. */
  update(members: readonly Member[], figures: HealthFigures): void {
    const { silentSinceMs } = figures;
    const troubles = silentSinceMs === null ? members.flatMap((member) => troublesOf(member, figures.ttlS)) : [];
    const { text, status } = silentSinceMs === null ? verdictOf(members, troubles, figures) : silence(silentSinceMs);
    setText(this.#verdict, text);
    this.#verdict.dataset.status = status;
    const key = JSON.stringify(troubles);
    if (key === this.#shown) return;
    this.#shown = key;
    this.#list.hidden = troubles.length === 0;
    this.#list.replaceChildren(
      ...troubles.map(({ nodeId, text, isLoss }) => {
        const item = make('li', {}, make('strong', {}, isolated(nodeId)), make('span', {}, isolated(text)));
        if (isLoss) item.className = 'loss';
        return item;
      }),
    );
  }
}

function troublesOf({ nodeId, state, error, report, sinceMs }: Member, ttlS: number | undefined): Trouble[] {
  if (state === 'lost') {
    const why = `no heartbeat${ttlS === undefined ? '' : ` for ${ttlS} s`}, no good-bye`;
    const text = `lost since ${formatMoment(sinceMs)}: ${why}. Its pages are misses until it is back.`;
    return [{ nodeId, text, isLoss: true }];
  }
  if (state === 'unreachable') return [{ nodeId, text: `does not answer: ${error}`, isLoss: true }];
  if (state !== 'up' || report?.health?.status !== 'degraded') return [];
  const reasons = report.health.reasons ?? [];
  return (reasons.length > 0 ? reasons : ['degraded, for a reason that it does not give']).map((reason) => {
    return { nodeId, text: String(reason), isLoss: false };
  });
}

function silence(sinceMs: number): Verdict {
  return { status: 'unknown', text: `Not known: no answer since ${formatMoment(sinceMs)}` };
}

function verdictOf(members: readonly Member[], troubles: readonly Trouble[], { timeMs }: HealthFigures): Verdict {
  const live = members.filter((member) => !isGone(member)).length;
  const lost = members.filter(({ state }) => state === 'lost').length;
  const hasLeft = members.filter(
    ({ state, sinceMs }) => (state === 'left' || state === 'gone') && timeMs - sinceMs < LEFT_SHOWN_MS,
  );
  const lastMs = Math.max(...hasLeft.map(({ sinceMs }) => sinceMs));
  const left =
    hasLeft.length === 0
      ? ''
      : `; ${hasLeft.length} ${hasLeft.length === 1 ? 'has left' : 'have left, the last'} at ${formatMoment(lastMs)}`;
  if (live + lost === 0)
    return { status: 'unknown', text: members.length > 0 ? 'It has left.' : 'Nothing is known of it now.' };
  const silent = members.filter(({ state }) => state === 'unreachable').length;
  const ill = new Set(troubles.filter(({ isLoss }) => !isLoss).map(({ nodeId }) => nodeId)).size;
  const parts = [
    ...(lost > 0 ? [`${lost} lost`] : []),
    ...(silent > 0 ? [`${silent} ${silent === 1 ? 'does' : 'do'} not answer`] : []),
    ...(ill > 0 ? [`${ill} degraded`] : []),
  ];
  if (parts.length > 0) {
    const status = lost + silent > 0 ? 'lost' : 'degraded';
    return { status, text: `${parts.join(', ')}; ${live - silent} of ${live + lost} nodes answer${left}` };
  }
  const answers = `${live} ${live === 1 ? 'node answers' : 'nodes answer'}`;
  return { status: left === '' ? 'ok' : 'fewer', text: left === '' ? `All is well: ${answers}.` : `${answers}${left}` };
}
