/** Words that a tokenizer knows as one token each, with the space before them. */
const SUBJECTS = ['river', 'teacher', 'engine', 'garden', 'doctor', 'market', 'train', 'writer', 'forest', 'machine'];
const VERBS = [
  'follows',
  'repairs',
  'describes',
  'visits',
  'changes',
  'studies',
  'moves',
  'builds',
  'paints',
  'counts',
];
const PLACES = ['city', 'school', 'valley', 'harbor', 'library', 'office', 'island', 'station', 'museum', 'village'];
/** Tokens of one sentence, about. */
const SENTENCE_TOKENS = 14;

/** A prompt of about so many tokens. Prompts of different numbers differ from their first sentence on. */
export function promptText(number: number, tokens: number): string {
  const sentences = [`Notes of day ${number + 1}.`];
  const random = sequence(number + 1);
  while (sentences.length * SENTENCE_TOKENS < tokens) {
    const [subject, verb, object, place] = [SUBJECTS, VERBS, SUBJECTS, PLACES].map(
      (words) => words[random(words.length)],
    );
    sentences.push(`${sentences.length}. The ${subject} ${verb} the ${object} near the ${place}.`);
  }
  return `${sentences.join(' ')} In one sentence, the notes say that`;
}

/** Numbers below a bound, the same ones for the same seed. */
function sequence(seed: number): (bound: number) => number {
  let state = seed * 2654435761;
  return (bound) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0;
    return (state >>> 8) % bound;
  };
}
