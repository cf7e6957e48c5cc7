// Order of search results. By default, pages with equal scores are ordered by title, with records
// of development first.
Scorer.score = ([docname, title, anchor, description, score, filename, kind]) => {
  if (/^(decisions|development)\/|^(benchmarks|differences|features)$/.test(docname)) return score * 0.3;
  if (/^(how-to|concepts|tutorials)\//.test(docname)) return score * 1.2;
  return score;
};
