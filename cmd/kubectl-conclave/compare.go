package main

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/cli/plot"
	"github.com/conclave-dev/conclave/internal/sim"
)

const compareLong = `Count the messages of all six algorithms for growing numbers of processes.

The highest of n processes crashes, and one of the others finds it out. Who that
is decides what it costs: the best, the mean and the worst are shown. The ring
is in ascending order.`

const compareExample = `  kubectl conclave simulate compare --max 100
  kubectl conclave simulate compare --max 100 -o svg > costs.svg`

func newCompare() *cobra.Command {
	var (
		most   int
		output string
	)
	outputs := []string{asTable, asSVG}
	cmd := &cobra.Command{
		Use:     "compare",
		Short:   "Count the messages of all algorithms, as a table or a plot",
		Long:    compareLong,
		Example: compareExample,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, outputs); err != nil {
				return err
			}
			bar := onTerminal(cmd.ErrOrStderr(), "points", 0, 0)
			compared, err := sim.Compare(most, bar.reportOf)
			bar.clear()
			if err != nil {
				return err
			}
			return writeComparison(cmd.OutOrStdout(), compared, output)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&most, "max", 100,
		fmt.Sprintf("the largest number of processes, from %d to %d", sim.MinCompared, sim.MaxCompared))
	cmd.Flags().StringVarP(&output, "output", "o", asTable, "table or svg")
	completeNothing(cmd, "max")
	completeFrom(cmd, "output", outputs)
	return cmd
}

func writeComparison(w io.Writer, compared []sim.Comparison, output string) error {
	if output == asSVG {
		_, err := chartOf(compared).WriteTo(w)
		return err
	}
	out := bufio.NewWriter(w)
	writeComparisonTable(out, compared)
	return out.Flush()
}

func writeComparisonTable(w io.Writer, compared []sim.Comparison) {
	fmt.Fprintln(w, "Messages until everyone knows the next coordinator, when the highest of n processes crashes and")
	fmt.Fprint(w, "another finds out: best / mean / worst over who that is, or one number where all are alike.\n\n")
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(columns, "n\t")
	for _, c := range compared {
		fmt.Fprintf(columns, "%s\t", c.Algorithm)
	}
	fmt.Fprintln(columns)
	for i, p := range compared[0].Points {
		fmt.Fprintf(columns, "%d\t", p.Processes)
		for _, c := range compared {
			fmt.Fprintf(columns, "%s\t", cost(c.Points[i]))
		}
		fmt.Fprintln(columns)
	}
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: nobody is left to be told
	if note := sampledNote(compared); note != "" {
		fmt.Fprintf(w, "\n%s\n", note)
	}
}

func cost(p sim.Point) string {
	if p.Best == p.Worst {
		return fmt.Sprint(p.Best)
	}
	return fmt.Sprintf("%d / %.1f / %d", p.Best, p.Mean, p.Worst)
}

// sampledNote says what a comparison left out, or "".
func sampledNote(compared []sim.Comparison) string {
	points := compared[0].Points
	note := ""
	if last := points[len(points)-1].Processes; len(points) < last-sim.MinCompared+1 {
		note = fmt.Sprintf("%d values of n up to %d are shown.", len(points), last)
	}
	for _, p := range points {
		if p.Sampled() {
			note += fmt.Sprintf(" From n = %d on, not everyone was tried in turn: %d evenly spaced ones for the largest n.",
				p.Processes, points[len(points)-1].Initiators)
			break
		}
	}
	return note
}

// chartOf draws a comparison: a panel each for the best, the mean and the worst.
func chartOf(compared []sim.Comparison) *plot.Chart {
	chart := &plot.Chart{
		Title:    "Messages until everyone knows the next coordinator",
		Subtitle: "The highest of n processes has crashed; another finds out, and it depends on who that is.",
		Note:     sampledNote(compared),
		XLabel:   "processes (n)", YLabel: "messages",
	}
	for _, panel := range []struct {
		title string
		of    func(sim.Point) float64
	}{
		{"Best: the right one finds out", func(p sim.Point) float64 { return float64(p.Best) }},
		{"Mean over all who may", func(p sim.Point) float64 { return p.Mean }},
		{"Worst", func(p sim.Point) float64 { return float64(p.Worst) }},
	} {
		drawn := plot.Panel{Title: panel.title}
		for _, c := range compared {
			line := plot.Line{Name: c.Algorithm}
			for _, p := range c.Points {
				line.X = append(line.X, float64(p.Processes))
				line.Y = append(line.Y, panel.of(p))
			}
			drawn.Lines = append(drawn.Lines, line)
		}
		chart.Panels = append(chart.Panels, drawn)
	}
	return chart
}
