import test from 'ava';
import { engineBench } from '../../src/bench/engine/engine.js';
import { type Answer, AnswerTimes, LOGPROB_TOLERANCE, promptText } from '../../src/bench/engine/engine-driver.js';

const COMPUTED: Answer = {
  first_token_s: 2,
  prompt_tokens: 100,
  cached_tokens: 0,
  text: ' a b',
  tokens: [5, 6],
  logprobs: [-0.5, -1],
};

function rowOf(changes: Partial<Answer>) {
  const times = new AnswerTimes();
  times.add('cold', 0, COMPUTED);
  times.add('own node', 0, { ...COMPUTED, first_token_s: 0.1, cached_tokens: 96, ...changes });
  return times.rows()[1];
}

test('engine bench: an answer that is the computed one counts as equal, with its time', (t) => {
  const row = rowOf({ logprobs: [-0.5, -1 - LOGPROB_TOLERANCE / 2] });
  t.like(row, {
    prompt_from: 'own node',
    first_token_ms: 100,
    times_faster: 20,
    cached_tokens: 96,
    texts_equal: '1 of 1',
  });
});

test('engine bench: another token, another log probability and a shorter answer are not equal', (t) => {
  t.is(rowOf({ tokens: [5, 7] })?.texts_equal, '0 of 1');
  t.is(rowOf({ logprobs: [-0.5, -1 - LOGPROB_TOLERANCE * 2] })?.texts_equal, '0 of 1');
  t.is(rowOf({ tokens: [5], logprobs: [-0.5] })?.texts_equal, '0 of 1');
});

test('engine bench: the read that only warms an engine is compared, and its time is left out', (t) => {
  const times = new AnswerTimes();
  times.add('cold', 0, COMPUTED);
  times.checkOnly('own node', 0, { ...COMPUTED, first_token_s: 9, tokens: [5, 7] });
  times.add('own node', 1, { ...COMPUTED, first_token_s: 0.1 });
  t.like(times.rows()[1], { first_token_ms: 100, texts_equal: '1 of 2' });
  t.is(times.different, 1);
});

test('engine bench: prompts are the same each time, and differ from their beginning on', (t) => {
  t.is(promptText(3, 500), promptText(3, 500));
  t.notDeepEqual(promptText(3, 500).slice(0, 40), promptText(4, 500).slice(0, 40));
  t.true(promptText(3, 1000).length > promptText(3, 500).length * 1.8);
});

test('engine bench: it says what is missing', async (t) => {
  const options = { rounds: 1, quick: true, progress() {} };
  await t.throwsAsync(engineBench(options), { message: /needs --environment/ });
  await t.throwsAsync(engineBench({ ...options, engine: { engine: 'gpt' } }), {
    message: /one of vllm, sglang, lmcache/,
  });
});
