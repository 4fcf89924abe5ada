import 'uplot/dist/uPlot.min.css';
import './style.css';
import { Api } from './api.js';
import { Dashboard } from './dashboard.js';
import { startTheme } from './theme.js';
import { TokenForm } from './token-form.js';
import { part } from './views/dom.js';

const POLL_MS = 1_000;
/** Milliseconds between two polls while nobody looks, or the node wants a token first. */
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
  // The next poll is planned first, so that a faulty answer does not stop polling.
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
