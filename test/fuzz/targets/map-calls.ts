import { ProtocolError } from '../../../src/base/errors.js';
import { MAP_ROUND_MS } from '../../../src/base/limits.js';
import { MARK_SURE, MARK_WORDS, pageMarks } from '../../../src/core/map/page-map.js';
import { mapAnswerFields, readMapAnswer, readMapQuestion } from '../../../src/node/map/map-messages.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { hexFields, receivedValue, valueInput } from '../values.js';

/** What followers ask a node about its pages. */
export const mapQuestions: Fuzzer = {
  name: 'map-questions',
  what: 'questions for a list of pages, or for what has happened to them',
  form: 'value',
  seeds: () => [
    valueInput({ follower: 'node-1', wait_ms: 500, list: 7 }),
    valueInput({ follower: 'node-1', wait_ms: 0, after: 'abc.12' }),
    valueInput({ follower: 'node-1', wait_ms: MAP_ROUND_MS + 1, after: 'x'.repeat(65) }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined || typeof received.value !== 'object' || received.value === null) return;
    const question = unlessRefused([ProtocolError], () => readMapQuestion(received.value as never))?.value;
    if (question === undefined) return;
    check(question.waitMs >= 0 && question.waitMs <= MAP_ROUND_MS, `wait of ${question.waitMs} ms`);
    check((question.list === undefined) !== (question.after === undefined), 'a list and a position, or neither');
  },
};

/** What a node hears of the pages of another one. */
export const mapAnswers: Fuzzer = {
  name: 'map-answers',
  what: 'answers that tell of the pages of a node',
  form: 'value',
  seeds: () => [
    valueInput(
      hexFields(mapAnswerFields({ marks: pageMarks(['a', 'b'], () => MARK_SURE), position: 'abc.13' })) as never,
    ),
    valueInput(hexFields(mapAnswerFields({ marks: new Uint32Array(0), isLost: true })) as never),
    valueInput({ marks: { $bytes: '010203' } }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined || typeof received.value !== 'object' || received.value === null) return;
    const answer = unlessRefused([ProtocolError], () => readMapAnswer(received.value as never))?.value;
    if (answer !== undefined) check(answer.marks.length % MARK_WORDS === 0, 'half a mark');
  },
};
