import type { Member } from '../data/members.js';
import { isolated, make, setText } from './dom.js';
import { formatClock } from './format.js';

interface Trouble {
  readonly nodeId: string;
  readonly text: string;
}

interface Verdict {
  readonly status: 'ok' | 'fewer' | 'degraded' | 'unknown';
  readonly text: string;
}

/** Says in plain words what is wrong, or that nothing is. */
export class HealthView {
  readonly #verdict = make('p', { class: 'verdict' });
  readonly #list = make('ul', { class: 'troubles' });
  #shown = '';

  constructor(section: HTMLElement) {
    section.append(make('div', { class: 'card health' }, this.#verdict, this.#list));
  }

  /**
   * Shows the health of these nodes; nodes that have left are not unhealthy. `lostSinceMs` is the time of the last
   * answer by the reader's clock if there has been none since, else null.
   */
  update(members: readonly Member[], lostSinceMs: number | null): void {
    const troubles = lostSinceMs === null ? members.flatMap(troublesOf) : [];
    const { text, status } = lostSinceMs === null ? verdictOf(members, troubles) : silence(lostSinceMs);
    setText(this.#verdict, text);
    this.#verdict.dataset.status = status;
    const key = JSON.stringify(troubles);
    if (key === this.#shown) return;
    this.#shown = key;
    this.#list.hidden = troubles.length === 0;
    this.#list.replaceChildren(
      ...troubles.map(({ nodeId, text }) =>
        make('li', {}, make('strong', {}, isolated(nodeId)), make('span', {}, isolated(text))),
      ),
    );
  }
}

function troublesOf({ nodeId, state, error, report }: Member): Trouble[] {
  if (state === 'unreachable') return [{ nodeId, text: `does not answer: ${error}` }];
  if (state === 'gone' || report?.health?.status !== 'degraded') return [];
  const reasons = report.health.reasons ?? [];
  return (reasons.length > 0 ? reasons : ['degraded, for a reason that it does not give']).map((reason) => {
    return { nodeId, text: String(reason) };
  });
}

function silence(sinceMs: number): Verdict {
  return { status: 'unknown', text: `Not known: no answer since ${formatClock(sinceMs)}` };
}

function verdictOf(members: readonly Member[], troubles: readonly Trouble[]): Verdict {
  const gone = members.filter(({ state }) => state === 'gone');
  const count = members.length - gone.length;
  if (count === 0) return { status: 'unknown', text: 'Nothing is known of it now.' };
  const lastMs = Math.max(...gone.map(({ sinceMs }) => sinceMs));
  const left = `${gone.length} ${gone.length === 1 ? 'is gone' : 'are gone, the last'} since ${formatClock(lastMs)}`;
  const ill = new Set(troubles.map(({ nodeId }) => nodeId)).size;
  if (ill > 0) {
    const illText =
      count === 1 ? 'Something is wrong:' : `${ill} of ${count} nodes ${ill === 1 ? 'has' : 'have'} trouble:`;
    return { status: 'degraded', text: gone.length === 0 ? illText : `${left}; ${illText}` };
  }
  if (gone.length > 0)
    return { status: 'fewer', text: `${count} ${count === 1 ? 'node answers' : 'nodes answer'}; ${left}` };
  return { status: 'ok', text: count === 1 ? 'All is well.' : `All is well: ${count} nodes answer.` };
}
