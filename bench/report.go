package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// idleGoal is the most resident memory a proxy that has served nothing should have.
const idleGoal = 30 << 20

// A row is one variant's results.
type row struct {
	variant variant
	idle    int64 // resident bytes before the first request
	rounds  []figures
}

// report prints the comparison. The first row must be the bare proxy's.
func report(out io.Writer, o options, warning string, rows []row) error {
	fmt.Fprintf(out, "\n%s; %d callers, %d rounds of %v each.\n", machine(), o.callers, o.rounds, o.time)
	fmt.Fprint(out, "Medians over the rounds; in brackets the ratio to the bare proxy, a median of the rounds' own ratios, with its least and greatest.\n"+
		"idemproxy runs as by default: access log (to a file) and metrics on. CPU is the proxy process's alone, user and system.\n"+warning+"\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "variant\trequests/s\tgoal\t\tp50\tp99\tCPU a request\tidle memory\t\n")
	for _, r := range rows {
		goal, reached := "", ""
		if r.variant.goal > 0 {
			goal, reached = fmt.Sprintf("≥%.2f", r.variant.goal), verdict(r.ratio(rows[0], rate)[1] >= r.variant.goal)
		}
		fmt.Fprintf(w, "%s\t%.0f %s\t%s\t%s\t%s %s\t%s %s\t%s %s\t%.1f MiB\t%s\n",
			r.variant.name,
			r.median(rate), r.brackets(rows[0], rate), goal, reached,
			duration(r.median(p50)), r.brackets(rows[0], p50),
			duration(r.median(p99)), r.brackets(rows[0], p99),
			duration(r.median(processor)), r.brackets(rows[0], processor),
			float64(r.idle)/(1<<20), verdict(r.idle < idleGoal))
	}
	fmt.Fprintf(w, "\t\t\t\t\t\t\t<%d MiB\t\n", idleGoal>>20)
	return w.Flush()
}

func rate(f figures) float64      { return f.rate }
func p50(f figures) float64       { return float64(f.p50) }
func p99(f figures) float64       { return float64(f.p99) }
func processor(f figures) float64 { return float64(f.processor) }

// median of a figure over the rounds.
func (r row) median(figure func(figures) float64) float64 {
	var values []float64
	for _, f := range r.rounds {
		values = append(values, figure(f))
	}
	return spread(values)[1]
}

// ratio of a figure to another row's of the same round: least, median, greatest.
func (r row) ratio(to row, figure func(figures) float64) [3]float64 {
	var values []float64
	for i, f := range r.rounds {
		values = append(values, figure(f)/figure(to.rounds[i]))
	}
	return spread(values)
}

func (r row) brackets(to row, figure func(figures) float64) string {
	if r.variant.kind == bareProxy {
		return ""
	}
	x := r.ratio(to, figure)
	return fmt.Sprintf("[%.2f, %.2f–%.2f]", x[1], x[0], x[2])
}

// spread returns the least, the median and the greatest value.
func spread(values []float64) [3]float64 {
	slices.Sort(values)
	n := len(values)
	return [3]float64{values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]}
}

func duration(ns float64) string { return time.Duration(ns).Round(time.Microsecond).String() }

func verdict(reached bool) string {
	if reached {
		return "reached"
	}
	return "MISSED"
}
