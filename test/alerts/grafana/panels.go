package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

const (
	width, statWidth, statHeight, height = 24, 4, 4, 8

	green, yellow, red = "green", "yellow", "red"
)

// source is the data source that the user selects.
var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}

// newDashboard returns a dashboard without panels. Its uid never changes, because links have it.
func newDashboard(uid, title, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).Uid(uid).Description(description).Tags([]string{"conclave"}).
		Refresh("30s").Time("now-1h", "now").Timezone("browser").Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Conclave").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"conclave"}).AsDropdown(true).IncludeVars(true).KeepTime(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
}

// variable is a choice from the values of a label.
func variable(name, label, query string, all bool) *dashboard.QueryVariableBuilder {
	v := dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).
		Query(dashboard.StringOrMap{String: &query}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
	if all {
		v = v.Multi(true).IncludeAll(true).AllValue(".*").
			Current(dashboard.VariableOption{
				Text: dashboard.StringOrArrayOfString{String: new("All")}, Value: dashboard.StringOrArrayOfString{String: new("$__all")},
			})
	}
	return v
}

func row(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }

// series is an expression with its legend.
type series struct{ expr, legend string }

func query(s series) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source).Expr(s.expr).LegendFormat(s.legend)
}

// graph shows series over time, half as wide as the page.
func graph(title, description, unit string, all ...series) *timeseries.PanelBuilder {
	panel := timeseries.NewPanelBuilder().Title(title).Description(description).Datasource(source).Unit(unit).Min(0).
		Span(width / 2).Height(height).FillOpacity(10).LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, s := range all {
		panel = panel.WithTarget(query(s).RefId(string(rune('A' + i))).Range())
	}
	return panel
}

// bars shows how often something happened.
func bars(title, description string, all ...series) *timeseries.PanelBuilder {
	return graph(title, description, units.Short, all...).DrawStyle(common.GraphDrawStyleBars).FillOpacity(60).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}

// number shows the latest value of an expression. Its color changes at the given values.
func number(title, description, unit string, s series, steps ...dashboard.Threshold) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Title(title).Description(description).Datasource(source).Unit(unit).
		Span(statWidth).Height(statHeight).WithTarget(query(s).RefId("A").Instant()).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps))
}

// names shows the labels of the results, for example which pod leads.
func names(title, description string, s series) *stat.PanelBuilder {
	return number(title, description, units.NoUnit, s, dashboard.Threshold{Color: green}).TextMode(common.BigValueTextModeName).Span(2 * statWidth)
}

// list shows the latest values as a table.
func list(title, description string, s series) *table.PanelBuilder {
	return table.NewPanelBuilder().Title(title).Description(description).Datasource(source).Span(width / 2).Height(height).
		WithTarget(query(s).RefId("A").Instant().Format(prometheus.PromQueryFormatTable)).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}}})
}

// zeroIsGood returns the colors of a value that should be 0.
func zeroIsGood(bad string) []dashboard.Threshold {
	return []dashboard.Threshold{{Color: green}, {Color: bad, Value: new(1.0)}}
}

// oneIsGood returns the colors of a value that should not be 0.
func oneIsGood() []dashboard.Threshold {
	return []dashboard.Threshold{{Color: red}, {Color: green, Value: new(1.0)}}
}

// lifeLeft returns the colors of a time until an expiry, in seconds.
func lifeLeft(warn, alert float64) []dashboard.Threshold {
	return []dashboard.Threshold{{Color: red}, {Color: yellow, Value: &alert}, {Color: green, Value: &warn}}
}
