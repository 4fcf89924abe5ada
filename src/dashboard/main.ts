import 'uplot/dist/uPlot.min.css';
import './style.css';
import { type Answer, Api } from './api.js';
import { startTheme } from './choices.js';
import { Dashboard } from './dashboard.js';
import { part, setHidden, setText } from './views/dom.js';

/** The form for the token of a node that requires one. The form itself sends nothing. */
class TokenForm {
  readonly #section = part('token', HTMLElement);
  readonly #input = part('token-text', HTMLInputElement);
  readonly #message = part('token-message', HTMLElement);
  #isAsking = false;

  constructor(onToken: (token: string) => void) {
    part('token-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      setText(this.#message, 'Asking …');
      this.#isAsking = true;
      onToken(this.#input.value.trim());
    });
  }

  /** Shows the form while the node refuses to answer without a token. */
  update(answer: Answer): void {
    if (answer.kind === 'report') {
      setHidden(this.#section, true);
      this.#input.value = '';
      return;
    }
    if (answer.kind !== 'unauthorized') return;
    const wasHidden = this.#section.hidden;
    setHidden(this.#section, false);
    if (answer.wasGiven) setText(this.#message, 'The node did not accept this token.');
    else if (wasHidden || this.#isAsking) setText(this.#message, '');
    this.#isAsking = false;
    if (wasHidden) this.#input.focus();
  }
}

const POLL_MS = 1_000;
/** Milliseconds between two polls while the page is hidden, or the node requires a token. */
const SLOW_POLL_MS = 10_000;

const api = new Api();
startTheme(part('theme', HTMLButtonElement), () => dashboard.redraw());
const dashboard = new Dashboard(api);
const tokenForm = new TokenForm((token) => {
  api.setToken(token);
  pollNow();
});

let timer = 0;
/** Number of the current poll; answers to older polls are dropped. */
let round = 0;

async function poll(): Promise<void> {
  const ownRound = ++round;
  const answer = await api.cluster();
  if (ownRound !== round) return;
  const isSlow = document.hidden || answer.kind === 'unauthorized';
  // The next poll is scheduled first, so that a faulty answer does not stop polling.
  timer = window.setTimeout(poll, isSlow ? SLOW_POLL_MS : POLL_MS);
  dashboard.take(answer, Date.now());
  tokenForm.update(answer);
}

function pollNow(): void {
  clearTimeout(timer);
  void poll();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) pollNow();
});
pollNow();
