// Finishes the site that TypeDoc has written to build/site: `node site/finish.mjs`. Fails for a dead link.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deadLinks } from './links.mjs';
import { addPictures } from './pictures.mjs';

const FOLDER = 'build/site';

for (const name of readdirSync(FOLDER, { recursive: true }).filter((each) => each.endsWith('.html'))) {
  const page = join(FOLDER, name);
  const html = readFileSync(page, 'utf8')
    // TypeDoc links to the README by a folder, for which only a server has a page.
    .replaceAll('href="../"', 'href="../index.html"')
    // Landmarks, and headings that open and close a section without a link inside, for readers who use the keyboard.
    .replace('<div class="col-content">', '<div class="col-content" role="main">')
    .replace('<div class="col-sidebar">', '<div class="col-sidebar" role="navigation" aria-label="Contents">')
    .replaceAll(/<summary.*?<\/summary>/gs, (summary) => summary.replaceAll(/<a [^>]*tsd-anchor-icon.*?<\/a>/gs, ''));
  writeFileSync(page, html);
}
// The search multiplies what begins with the searched words by ten, divided by how much longer its title is: a document
// with a long title would come after all that have the words somewhere.
const main = join(FOLDER, 'assets/main.js');
const script = readFileSync(main, 'utf8');
const ranked = script.replace(/10\/\(1\+Math\.abs\([^()]+\)\)/, 'Math.max(1,$&)');
if (ranked === script) throw new Error(`The search in ${main} ranks in another way than site/finish.mjs expects.`);
writeFileSync(main, ranked);
await addPictures(FOLDER);
const dead = deadLinks(FOLDER);
for (const link of dead) console.error(`This link of the site leads nowhere: ${link}`);
if (dead.length > 0) process.exit(1);
console.log(`The site is ${FOLDER}/index.html.`);
