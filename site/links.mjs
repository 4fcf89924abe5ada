// Finds links of a static site that lead nowhere.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/** What HTML writes for the marks that an attribute may not have. */
const ENTITIES = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" };
/** Addresses with a scheme lead out of the site. */
const OUTSIDE = /^[a-z]+:/i;

/** Links and anchors of a page. Only tags have attributes: in text, `<` is written `&lt;`. */
function attributesOf(html) {
  const found = { links: new Set(), anchors: new Set() };
  for (const [tag] of html.matchAll(/<[a-z][^>]*>/g)) {
    for (const [, name, value] of tag.matchAll(/\s(href|src|id)="([^"]*)"/g)) {
      const text = value.replaceAll(/&[#\w]+;/g, (entity) => ENTITIES[entity] ?? entity);
      (name === 'id' ? found.anchors : found.links).add(text);
    }
  }
  return found;
}

/** The links between the pages below `folder` whose file or anchor does not exist, each as `page -> link`. */
export function deadLinks(folder) {
  const paths = readdirSync(folder, { recursive: true }).map((name) => join(folder, name));
  const pages = new Map(
    paths.filter((path) => path.endsWith('.html')).map((path) => [path, attributesOf(readFileSync(path, 'utf8'))]),
  );
  const isDead = (page, link) => {
    const [file, anchor = ''] = link.split('#').map(decodeURIComponent);
    const target = file === '' ? page : join(dirname(page), file);
    if (!existsSync(target) || !statSync(target).isFile()) return true;
    return anchor !== '' && pages.has(target) && !pages.get(target).anchors.has(anchor);
  };
  return [...pages].flatMap(([page, { links }]) =>
    [...links]
      .filter((link) => !OUTSIDE.test(link) && isDead(page, link))
      .map((link) => `${relative(folder, page)} -> ${link}`),
  );
}
