// Command grafana writes the Grafana dashboards of Conclave as JSON:
//
//	go run ./grafana FOLDER
//
// The dashboards are code, so that a metric, a title or a color is changed in one place. The test
// in the parent folder evaluates their expressions.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: grafana FOLDER")
	}
	for name, builder := range map[string]*dashboard.DashboardBuilder{
		"groups": groups(), "group": group(), "agents": agents(), "manager": manager(),
	} {
		built, err := builder.Build()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		numberPanels(built.Panels)
		text, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(args[0], "conclave-"+name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// numberPanels sets the ids, which addresses of single panels contain.
func numberPanels(panels []dashboard.PanelOrRowPanel) {
	for i, either := range panels {
		id := uint32(i + 1)
		if either.Panel != nil {
			either.Panel.Id = &id
		} else {
			either.RowPanel.Id = id
		}
	}
}
