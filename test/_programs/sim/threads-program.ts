import { isMainThread } from 'node:worker_threads';
import type { MessageEnd } from '../../../src/base/environment/threads.js';
import { startOfThread } from '../../../src/system/system-threads.js';

/** Says hello, then echoes every message. `data` has one element: 1 if several messages may be received at once. */
export async function echo(data: unknown, messages: MessageEnd): Promise<void> {
  messages.post('hello');
  return new Promise((resolve, reject) => {
    messages.onMessage((message) => {
      if (message === 'fail') reject(new Error('told to fail'));
      else if (message === 'end') messages.close();
      // All remaining messages, in one answer.
      else if (message === 'take all') {
        Atomics.wait(data as Int32Array, 0, 0);
        messages.post(allOf(messages));
      } else messages.post(message);
    });
    messages.onClose(() => resolve());
  });
}

function allOf(messages: MessageEnd): unknown[] {
  const all: unknown[] = [];
  for (let next = messages.receive(); next !== undefined; next = messages.receive()) all.push(next);
  return all;
}

if (!isMainThread) {
  const { data, messages } = startOfThread();
  void echo(data, messages);
}
