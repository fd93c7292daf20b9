package simulate

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/output"
	"github.com/conclave-dev/conclave/internal/sim"
)

const compareLong = `Count the messages of all six algorithms for growing groups.

The highest of n processes crashes, and one of the others detects it. The cost
depends on which process that is: the output has the best case, the mean and the
worst case. The ring is in ascending order.`

const compareExample = `  kubectl conclave simulate compare --max 100
  kubectl conclave simulate compare --max 100 -o json`

func newCompare() *cobra.Command {
	var (
		largest int
		format  string
	)
	outputs := []string{output.Table, output.JSON, output.YAML}
	cmd := &cobra.Command{
		Use:     "compare",
		Short:   "Compare the message cost of all algorithms",
		Long:    compareLong,
		Example: compareExample,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Choose(&format, outputs); err != nil {
				return err
			}
			compared, err := sim.Compare(largest)
			if err != nil {
				return err
			}
			return writeComparison(cmd.OutOrStdout(), compared, format)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&largest, "max", 100,
		fmt.Sprintf("the largest number of processes, from %d to %d", sim.MinCompared, sim.MaxCompared))
	cmd.Flags().StringVarP(&format, "output", "o", output.Table, "one of "+strings.Join(outputs, ", "))
	command.CompleteNothing(cmd, "max")
	command.CompleteFrom(cmd, "output", outputs)
	return cmd
}

func writeComparison(w io.Writer, compared []sim.Comparison, format string) error {
	if format != output.Table {
		return output.Write(w, compared, format)
	}
	out := bufio.NewWriter(w)
	writeComparisonTable(out, compared)
	return out.Flush()
}

func writeComparisonTable(w io.Writer, compared []sim.Comparison) {
	fmt.Fprintln(w, "Messages until all processes know the new coordinator, after the highest of n processes crashes")
	fmt.Fprint(w, "and another detects it: best / mean / worst detecting process, or one number if all cost the same.\n\n")
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
	columns.Flush() //nolint:errcheck // as with fmt.Fprint: there is no caller to return it to
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

// sampledNote describes what a comparison omits. It is empty if that is nothing.
func sampledNote(compared []sim.Comparison) string {
	points := compared[0].Points
	note := ""
	if last := points[len(points)-1].Processes; len(points) < last-sim.MinCompared+1 {
		note = fmt.Sprintf("%d values of n up to %d are shown.", len(points), last)
	}
	for _, p := range points {
		if p.Sampled() {
			note += fmt.Sprintf(" From n = %d on, a sample of the detecting processes was simulated: %d for the largest n, evenly spaced.",
				p.Processes, points[len(points)-1].Initiators)
			break
		}
	}
	return note
}
