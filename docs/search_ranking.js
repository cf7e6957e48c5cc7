// Search of the site: which pages answer a question, and in which order.
//
// By default a page must have all words of a query, so that a question whose words no page has
// together finds nothing; pages with equal scores are ordered by title.  Here a page gets points for
// each word, more for a rare one and for one of a title, and a long page fewer.
{
  const QUESTION = new Set(
    ("a about an and any are at can could default defaults do does did for from get happen happens has have how i if " +
      "in is it its mean meaning means my need needs of on one or our should show shows tell that the their there these this to use used uses what when where " +
      "which who why will with would you your").split(" "),
  );
  const KEPT = 0.4; // of the best score
  const NAME = 60; // points of a name of the reference within a question
  const TITLE = 0.5; // more for a page whose whole title is in the query, such as "Labels"
  const LENGTH = 0.1; // part of the points that depends on the length of the page

  const wordsOf = (query) =>
    query.trim().split(/\s+/).map((word) => word.replace(/^["'(`]+|["')`,;:?!.]+$/g, ""));

  const parseQuery = Search._parseQuery;
  Search._parseQuery = (query) => {
    const words = wordsOf(query).filter((word) => !QUESTION.has(word.toLowerCase()));
    return parseQuery(words.join(" ") || query);
  };

  // Number of words of each page.
  let lengths = null;
  const lengthOf = (docname) => {
    if (lengths === null) {
      const counts = Search._index.docnames.map(() => 0);
      for (const files of Object.values(Search._index.terms))
        for (const file of [files].flat()) counts[file] += 1;
      const mean = counts.reduce((sum, count) => sum + count, 0) / counts.length;
      lengths = new Map(Search._index.docnames.map((name, at) => [name, counts[at] / mean]));
    }
    return lengths.get(docname);
  };

  const shareOfTitle = (title, searchTerms) => {
    const stemmer = new Stemmer();
    const words = splitQuery(title.toLowerCase()).filter((word) => !stopwords.has(word));
    return words.filter((word) => searchTerms.has(stemmer.stemWord(word))).length / (words.length || 1);
  };

  const performTermsSearch = Search.performTermsSearch;
  Search.performTermsSearch = (searchTerms, excludedTerms) => {
    const points = new Map();
    let whole = 0;
    for (const term of searchTerms) {
      const results = performTermsSearch(new Set([term]), excludedTerms);
      if (!results.length) continue;
      const rarity = Math.log(Search._index.docnames.length / results.length) + 0.1;
      whole += rarity;
      for (const result of results) {
        const before = points.get(result[0])?.[4] ?? 0;
        points.set(result[0], [...result.slice(0, 4), before + result[4] * rarity, ...result.slice(5)]);
      }
    }
    for (const result of points.values()) {
      result[4] *= 1 + TITLE * shareOfTitle(result[1], searchTerms) ** 2;
      result[4] /= whole * (1 - LENGTH + LENGTH * lengthOf(result[0]));
    }
    const best = Math.max(...[...points.values()].map((result) => result[4]));
    return [...points.values()].filter((result) => result[4] >= KEPT * best);
  };

  const performSearch = Search._performSearch;
  Search._performSearch = (query, ...rest) => {
    const results = performSearch(query, ...rest);
    const { docnames, filenames, indexentries, titles } = Search._index;
    for (const word of wordsOf(query.toLowerCase())) {
      if (word === query.toLowerCase() || !/[^a-z]/.test(word)) continue;
      for (const [file, anchor] of Object.hasOwn(indexentries, word) ? indexentries[word] : [])
        results.push([
          docnames[file], titles[file], `#${anchor}`, null, NAME, filenames[file], SearchResultKind.index,
        ]);
    }
    return results;
  };

  Scorer.score = ([docname, title, anchor, description, score, filename, kind]) => {
    if (/^(decisions|development)\/|^(benchmarks|differences|features|architecture)$/.test(docname)) return score * 0.3;
    if (/^(how-to|concepts|tutorials)\//.test(docname)) return score * 1.2;
    return score;
  };
}
