// The program promql evaluates instant queries over given series, with the engine of Prometheus.
//
// Input: {"interval_s": 60, "series": ["up{job=\"a\"} 1 1 0"], "queries": [{"expr": "up == 0", "at_s": 120}]}.
// Output: a list per query with the labels and the value of each sample.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type query struct {
	Expr string  `json:"expr"`
	AtS  float64 `json:"at_s"`
}

type input struct {
	IntervalS float64  `json:"interval_s"`
	Series    []string `json:"series"`
	Queries   []query  `json:"queries"`
}

type sample struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	reader := parser.NewParser(parser.Options{})
	queryable, err := load(reader, in.Series, in.IntervalS)
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: reader})
	results := make([][]sample, 0, len(in.Queries))
	for _, one := range in.Queries {
		at := time.UnixMilli(int64(one.AtS * 1000))
		prepared, err := engine.NewInstantQuery(context.Background(), queryable, nil, one.Expr, at)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Expr, err)
		}
		vector, err := prepared.Exec(context.Background()).Vector()
		if err != nil {
			return fmt.Errorf("%s: %w", one.Expr, err)
		}
		samples := make([]sample, 0, len(vector))
		for _, each := range vector {
			samples = append(samples, sample{each.Metric.Map(), each.F})
		}
		results = append(results, samples)
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

type sampled struct {
	labels labels.Labels
	values []chunks.Sample
}

// point is a float sample.
type point struct {
	t int64
	f float64
}

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.f }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

func load(reader parser.Parser, texts []string, intervalS float64) (storage.Queryable, error) {
	var all []sampled
	for _, text := range texts {
		metric, values, err := reader.ParseSeriesDesc(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		var points []chunks.Sample
		for i, value := range values {
			if !value.Omitted {
				points = append(points, point{int64(float64(i) * intervalS * 1000), value.Value})
			}
		}
		all = append(all, sampled{metric, points})
	}
	querier := &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			var found []storage.Series
			for _, each := range all {
				if matches(each.labels, matchers) {
					found = append(found, storage.NewListSeries(each.labels, each.values))
				}
			}
			return &set{series: found}
		},
	}
	return &storage.MockQueryable{MockQuerier: querier}, nil
}

func matches(of labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(of.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type set struct {
	series []storage.Series
	next   int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
